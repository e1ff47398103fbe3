// Panels with a table.
import { TableNG } from '@grafana/ui/unstable';

import { configOf } from './fields.js';

/** Give the frame that a table shows. */
export const shownFrame = ({ frames, options }) => frames[options?.frameIndex ?? 0] ?? frames[0];

export function PanelTable({ panel, width, height, timeRange }) {
  const { options = {} } = panel;
  const fieldConfig = configOf(panel);
  return (
    <TableNG
      data={shownFrame(panel)}
      width={width}
      height={height}
      noHeader={!options.showHeader}
      showTypeIcons={options.showTypeIcons}
      cellHeight={options.cellHeight}
      maxRowHeight={options.maxRowHeight}
      sortBy={options.sortBy}
      frozenColumns={options.frozenColumns?.left}
      enablePagination={options.enablePagination}
      noValue={fieldConfig.defaults.noValue}
      fieldConfig={fieldConfig}
      timeRange={timeRange}
      structureRev={1}
      resizable
      enableVirtualization={false}
    />
  );
}
