// One panel: Grafana's frame with the visualization in it, or with the text that there are no data, or with an error.
import { PanelChrome } from '@grafana/ui';
import { Component } from 'react';

import { HeatMap } from './heat_map.jsx';
import { PanelTable } from './table.jsx';
import { Graph } from './time_series.jsx';
import { Bars, Stats } from './values.jsx';

/** What draws the inside of a panel, by its type. */
export const VISUALIZATIONS = { timeseries: Graph, table: PanelTable, heatmap: HeatMap, stat: Stats, bargauge: Bars };
const SHOW_EMPTINESS = new Set(['stat', 'bargauge']); // as a value, by their own component

export function Panel({ panel, box, timeRange, theme }) {
  const { width, height } = box;
  const error = panel.error ?? panel.answers.map((one) => one.error).find(Boolean);
  return (
    <div data-panel={panel.id} style={box}>
      <PanelChrome
        width={width}
        height={height}
        title={panel.title}
        description={panel.description}
        padding={panel.type === 'table' ? 'none' : 'md'}
        displayMode={panel.transparent ? 'transparent' : 'default'}
        statusMessage={error}
      >
        {(inner, innerHeight) => (
          <Guard panel={panel} theme={theme}>
            {error ? (
              <Words text={error} color={theme.colors.error.text} />
            ) : (
              <Inside panel={panel} width={inner} height={innerHeight} timeRange={timeRange} theme={theme} />
            )}
          </Guard>
        )}
      </PanelChrome>
    </div>
  );
}

function Inside({ panel, ...rest }) {
  const Visualization = VISUALIZATIONS[panel.type];
  if (panel.frames.every((frame) => !frame.fields.length) && !SHOW_EMPTINESS.has(panel.type)) {
    const text = panel.fieldConfig?.defaults?.noValue ?? 'No data';
    return <Words text={text} color={rest.theme.colors.text.secondary} />;
  }
  return <Visualization panel={panel} {...rest} />;
}

/** Keeps the error of one panel from the others. React requires a class for this. */
class Guard extends Component {
  state = { error: null };

  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    const { panel, theme, children } = this.props;
    if (!this.state.error) {
      return children;
    }
    panel.error = String(this.state.error.message ?? this.state.error);
    return <Words text={panel.error} color={theme.colors.error.text} />;
  }
}

function Words({ text, color }) {
  const centre = { display: 'flex', alignItems: 'center', justifyContent: 'center', width: '100%', height: '100%' };
  return <div style={{ ...centre, color, fontSize: 18, textAlign: 'center' }}>{text}</div>;
}
