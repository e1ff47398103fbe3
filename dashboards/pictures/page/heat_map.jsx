// A heat map of a histogram over time. Grafana's own is not in its packages: this draws the same cells, axes and scale.
import { dateTimeFormat, formattedValueToString, getValueFormat } from '@grafana/data';
import { useEffect, useRef } from 'react';

const LEFT = 64; // for the bounds of buckets
const AXIS = 24; // below the cells, for the time
const SCALE = 30; // below the time, for the colours
const TICK = 100; // least pixels between two times
const FONT = 12;

/** Colours of a scheme from low to high, as d3-scale-chromatic has them. */
const ORANGES = ['fff5eb', 'fee6ce', 'fdd0a2', 'fdae6b', 'fd8d3c', 'f16913', 'd94801', 'a63603', '7f2704'];

export function HeatMap({ panel, width, height, timeRange, theme }) {
  const canvas = useRef(null);
  useEffect(() => {
    const pen = canvas.current.getContext('2d');
    draw({ pen, panel, width, height, timeRange, theme });
  }, [panel, width, height, timeRange, theme]);
  return <canvas ref={canvas} width={width} height={height} />;
}

function draw({ pen, panel, width, height, timeRange, theme }) {
  const { options = {} } = panel;
  const buckets = bucketsOf(panel.answers.flatMap((one) => one.series));
  const [begin, end] = [timeRange.from.valueOf() / 1000, timeRange.to.valueOf() / 1000];
  const area = { right: width, bottom: height - AXIS - SCALE };
  const xOf = (time) => LEFT + ((time - begin) / (end - begin)) * (width - LEFT);
  const yOf = (place) => area.bottom - (place * area.bottom) / buckets.length;
  const least = options.filterValues?.le ?? 0;
  const shown = buckets.flatMap(({ counts }, place) => counts.map(([time, count]) => ({ place, time, count })));
  const counts = shown.map((one) => one.count).filter((one) => one > least);
  const [low, high] = [Math.min(...counts), Math.max(...counts)];
  const palette = paletteOf(options.color?.steps ?? 64, theme.isDark !== Boolean(options.color?.reverse));
  const gap = options.cellGap ?? 1;
  const step = panel.answers[0].step;
  for (const { place, time, count } of shown.filter((one) => one.count > least && one.time > begin)) {
    const share = high > low ? (count - low) / (high - low) : 1;
    pen.fillStyle = palette[Math.min(palette.length - 1, Math.floor(share * palette.length))];
    const [x, y] = [Math.max(LEFT, xOf(time - step)), yOf(place + 1)];
    pen.fillRect(x, y, Math.max(1, xOf(time) - x - gap), Math.max(1, yOf(place) - y - gap));
  }
  pen.font = `${FONT}px ${theme.typography.fontFamily}`;
  pen.fillStyle = theme.colors.text.primary;
  drawBounds(pen, buckets, options.yAxis?.unit, yOf);
  drawTimes(pen, begin, end, xOf, area.bottom + AXIS - 8);
  drawScale(pen, palette, [low, high], options.cellValues?.unit, height - SCALE + 4, theme);
}

/** Give the buckets from low to high: the upper bound, and the counts of this bucket alone by time. */
function bucketsOf(series) {
  const boundOf = ({ metric }) => Number(metric.le.replace('+Inf', 'Infinity'));
  const sorted = [...series].sort((one, other) => boundOf(one) - boundOf(other));
  return sorted.map((one, place) => {
    const below = new Map(place ? sorted[place - 1].values : []);
    const counts = one.values.map(([time, text]) => [time, Math.max(0, Number(text) - Number(below.get(time) ?? 0))]);
    return { bound: boundOf(one), counts };
  });
}

function paletteOf(steps, isReversed) {
  const scheme = isReversed ? [...ORANGES].reverse() : ORANGES;
  return Array.from({ length: steps + 1 }, (_, place) => mixed(scheme, (place / steps) * (scheme.length - 1)));
}

function mixed(scheme, place) {
  const index = Math.min(Math.floor(place), scheme.length - 2);
  const parts = [0, 2, 4].map((start) => {
    const [one, other] = [index, index + 1].map((at) => parseInt(scheme[at].slice(start, start + 2), 16));
    return Math.round(one + (other - one) * (place - index));
  });
  return `rgb(${parts.join(', ')})`;
}

function written(unit, value) {
  return value === Infinity ? '+Inf' : formattedValueToString(getValueFormat(unit ?? 'short')(value));
}

function drawBounds(pen, buckets, unit, yOf) {
  pen.textAlign = 'right';
  const every = Math.max(1, Math.ceil((FONT + 4) / (yOf(0) - yOf(1))));
  buckets.forEach(({ bound }, place) => {
    if (place % every === 0) {
      pen.fillText(written(unit, bound), LEFT - 6, yOf(place + 1) + FONT);
    }
  });
}

function drawTimes(pen, begin, end, xOf, y) {
  pen.textAlign = 'center';
  const seconds = ((end - begin) * TICK) / (xOf(end) - xOf(begin));
  const every = [15, 30, 60, 120, 300, 600, 900, 1800, 3600].find((one) => one >= seconds) ?? 7200;
  const format = every < 60 ? 'HH:mm:ss' : 'HH:mm';
  for (let time = Math.ceil(begin / every) * every; time < end; time += every) {
    pen.fillText(dateTimeFormat(time * 1000, { format, timeZone: 'utc' }), xOf(time), y);
  }
}

function drawScale(pen, palette, [low, high], unit, y, theme) {
  const cell = 4;
  palette.forEach((color, place) => {
    pen.fillStyle = color;
    pen.fillRect(LEFT + place * cell, y, cell, 8);
  });
  if (Number.isFinite(low)) {
    pen.fillStyle = theme.colors.text.primary;
    pen.textAlign = 'left';
    const text = `${written(unit, low)} to ${written(unit, high)}`;
    pen.fillText(text, LEFT + palette.length * cell + 8, y + 9);
  }
}
