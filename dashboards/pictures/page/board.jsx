// The page of a dashboard: head with variables and links, rows, and panels at their places in a grid of 24 columns.
import { Icon } from '@grafana/ui';

import { Panel } from './panel.jsx';
import { timeRangeOf } from './time_range.js';

// Sizes of Grafana's grid and page, in pixels.
const COLUMNS = 24;
const UNIT = 30;
const GAP = 8;
const PADDING = 16;

export function Board({ given, panels, theme }) {
  const { board, width } = given;
  const column = (width - 2 * PADDING + GAP) / COLUMNS;
  const timeRange = timeRangeOf(given);
  const bottom = Math.max(0, ...panels.map(({ gridPos: { y, h } }) => y + h));
  const boxOf = ({ x, y, w, h }) => ({
    position: 'absolute',
    left: PADDING + x * column,
    top: y * (UNIT + GAP),
    width: w * column - GAP,
    height: h * (UNIT + GAP) - GAP,
  });
  const page = { width, background: theme.colors.background.canvas, fontFamily: theme.typography.fontFamily };
  return (
    <div style={page}>
      <Head board={board} given={given} theme={theme} />
      <div style={{ position: 'relative', height: bottom * (UNIT + GAP) + PADDING }}>
        {panels.map((panel) => {
          const box = boxOf(panel.gridPos);
          return panel.type === 'row' ? (
            <Row key={panel.id} panel={panel} box={box} theme={theme} />
          ) : (
            <Panel key={panel.id} panel={panel} box={box} timeRange={timeRange} theme={theme} />
          );
        })}
      </div>
    </div>
  );
}

function Head({ board, given, theme }) {
  const { colors, shape, typography } = theme;
  const line = { display: 'flex', flexWrap: 'wrap', alignItems: 'center', gap: GAP, padding: `${GAP}px ${PADDING}px` };
  const box = { border: `1px solid ${colors.border.medium}`, borderRadius: shape.radius.default, height: 32 };
  const part = { display: 'inline-flex', alignItems: 'center', padding: '0 8px', height: '100%' };
  const label = { ...part, background: colors.background.secondary, fontSize: 12, fontWeight: 500 };
  const end = new Date(given.to * 1000).toISOString().slice(0, 16).replace('T', ' ');
  return (
    <header style={{ color: colors.text.primary, fontSize: typography.fontSize }}>
      <div style={{ ...line, background: colors.background.primary, borderBottom: `1px solid ${colors.border.weak}` }}>
        <span style={{ fontSize: 16 }}>{board.title}</span>
        <span style={{ color: colors.text.secondary }}>{given.note}</span>
        <span style={{ color: colors.text.secondary, marginLeft: 'auto' }}>
          Last {given.last} to {end} UTC
        </span>
      </div>
      <div style={line}>
        {board.variables.map((one) => (
          <span key={one.name} style={{ ...box, display: 'inline-flex' }}>
            <span style={label}>{one.label}</span>
            <span style={part}>
              {one.text}
              <Icon name="angle-down" />
            </span>
          </span>
        ))}
        {board.links.map((title) => (
          <span key={title} style={{ ...box, ...part, height: 32, background: colors.background.secondary }}>
            {title}
          </span>
        ))}
      </div>
    </header>
  );
}

function Row({ panel, box, theme }) {
  const { colors, typography } = theme;
  const line = { display: 'flex', alignItems: 'center', gap: GAP, color: colors.text.primary, ...typography.h5 };
  return (
    <div style={{ ...box, ...line }}>
      <Icon name={panel.collapsed ? 'angle-right' : 'angle-down'} />
      {panel.title}
      {panel.collapsed && (
        <i style={{ color: colors.text.secondary, fontSize: 12 }}>
          ({panel.hidden} {panel.hidden === 1 ? 'panel' : 'panels'})
        </i>
      )}
    </div>
  );
}
