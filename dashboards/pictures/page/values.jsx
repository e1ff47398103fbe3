// Panels with one value of each series: numbers (stat) and bars (bar gauge).
import { getDisplayValueAlignmentFactors, getFieldDisplayValues, VizOrientation } from '@grafana/data';
import { BarGaugeDisplayMode, BarGaugeSizing, BigValueGraphMode, BigValueTextMode } from '@grafana/schema';
import { BarGauge, BigValue, VizRepeater } from '@grafana/ui';

import { configOf } from './fields.js';

const SIZES = { minVizWidth: 8, minVizHeight: 16, maxVizHeight: 300 }; // Grafana's, unless a panel sets its own
const GAPS = { stat: 3, bars: 10, retro: 2 };

export function Stats(props) {
  const { panel, theme, timeRange } = props;
  const { options = {}, title } = panel;
  const wantsName = !title || configOf(panel).defaults.displayName;
  const isAuto = (options.textMode ?? BigValueTextMode.Auto) === BigValueTextMode.Auto;
  return (
    <Repeated
      {...props}
      itemSpacing={GAPS.stat}
      autoGrid
      sparkline={(options.graphMode ?? BigValueGraphMode.Area) !== BigValueGraphMode.None}
      renderValue={({ value, alignmentFactors, count, width, height }) => (
        <BigValue
          value={value.display}
          sparkline={value.sparkline && { ...value.sparkline, timeRange }}
          count={count}
          alignmentFactors={alignmentFactors}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={isAuto && wantsName ? BigValueTextMode.ValueAndName : options.textMode}
          text={options.text}
          wideLayout={options.wideLayout}
          width={width}
          height={height}
          theme={theme}
        />
      )}
    />
  );
}

export function Bars(props) {
  const { panel, theme } = props;
  const { options = {} } = panel;
  const hasOwnName = Boolean(configOf(panel).defaults.displayName);
  const hasOwnSizes = options.sizing === BarGaugeSizing.manual;
  const itemSpacing = options.displayMode === BarGaugeDisplayMode.Lcd ? GAPS.retro : GAPS.bars;
  return (
    <Repeated
      {...props}
      {...(hasOwnSizes ? picked(options, Object.keys(SIZES)) : SIZES)}
      itemSpacing={itemSpacing}
      renderValue={({ value, alignmentFactors, orientation, count, width, height }) => (
        <BarGauge
          value={count === 1 && !hasOwnName ? { ...value.display, title: undefined } : value.display}
          field={value.field}
          display={value.view?.getFieldDisplayProcessor(value.colIndex)}
          alignmentFactors={count > 1 ? alignmentFactors : undefined}
          orientation={orientation}
          displayMode={options.displayMode}
          valueDisplayMode={options.valueMode}
          namePlacement={options.namePlacement}
          showUnfilled={options.showUnfilled}
          text={options.text}
          itemSpacing={itemSpacing}
          isOverflow={(height + itemSpacing) * count - itemSpacing > props.height}
          width={width}
          height={height}
          theme={theme}
        />
      )}
    />
  );
}

function Repeated({ panel, theme, sparkline = false, ...rest }) {
  const { options = {}, frames } = panel;
  const getValues = () =>
    getFieldDisplayValues({
      data: frames,
      fieldConfig: configOf(panel),
      reduceOptions: { calcs: ['lastNotNull'], ...options.reduceOptions },
      percentChange: options.showPercentChange,
      replaceVariables: (text) => text,
      timeZone: 'utc',
      sparkline,
      theme,
    });
  return (
    <VizRepeater
      {...rest}
      source={frames}
      orientation={options.orientation || VizOrientation.Auto}
      getValues={getValues}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderCounter={0}
    />
  );
}

const picked = (object, keys) => Object.fromEntries(keys.map((key) => [key, object[key]]));
