// Field options that Grafana's panels assume where a board sets none.
import {
  AxisColorMode,
  AxisPlacement,
  BarAlignment,
  GraphDrawStyle,
  GraphGradientMode,
  GraphThresholdsStyleMode,
  LineInterpolation,
  ScaleDistribution,
  StackingMode,
  TableCellDisplayMode,
  ThresholdsMode,
  VisibilityMode,
} from '@grafana/schema';

const THRESHOLDS = {
  mode: ThresholdsMode.Absolute,
  steps: [
    { value: -Infinity, color: 'green' },
    { value: 80, color: 'red' },
  ],
};

const OF_VALUES = { color: { mode: 'thresholds' }, thresholds: THRESHOLDS, custom: {} };

/** The `defaults` of a field configuration, by the type of a panel. */
export const DEFAULTS = {
  stat: OF_VALUES,
  bargauge: OF_VALUES,
  heatmap: { custom: {} },
  table: {
    ...OF_VALUES,
    custom: { align: 'auto', cellOptions: { type: TableCellDisplayMode.Auto }, inspect: false, filterable: false },
  },
  timeseries: {
    color: { mode: 'palette-classic' },
    thresholds: THRESHOLDS,
    custom: {
      drawStyle: GraphDrawStyle.Line,
      lineInterpolation: LineInterpolation.Linear,
      lineWidth: 1,
      fillOpacity: 0,
      gradientMode: GraphGradientMode.None,
      barAlignment: BarAlignment.Center,
      showPoints: VisibilityMode.Auto,
      pointSize: 5,
      spanNulls: false,
      insertNulls: false,
      stacking: { mode: StackingMode.None, group: 'A' },
      axisPlacement: AxisPlacement.Auto,
      axisLabel: '',
      axisColorMode: AxisColorMode.Text,
      axisGridShow: true,
      axisBorderShow: false,
      axisCenteredZero: false,
      scaleDistribution: { type: ScaleDistribution.Linear },
      thresholdsStyle: { mode: GraphThresholdsStyleMode.Off },
      hideFrom: { legend: false, tooltip: false, viz: false },
    },
  },
};
