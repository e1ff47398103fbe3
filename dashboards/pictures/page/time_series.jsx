// Panels with time series.
import { EventBusSrv } from '@grafana/data';
import { PanelContextProvider, TimeSeries } from '@grafana/ui';

const CONTEXT = {
  eventsScope: 'global',
  eventBus: new EventBusSrv(),
  canAddAnnotations: () => false,
};

export function Graph({ panel, width, height, timeRange }) {
  const options = panel.options ?? {};
  return (
    <PanelContextProvider value={CONTEXT}>
      <TimeSeries
        frames={panel.frames}
        structureRev={1}
        timeRange={timeRange}
        timeZone="utc"
        width={width}
        height={height}
        legend={options.legend ?? { showLegend: false }}
        options={options}
      />
    </PanelContextProvider>
  );
}
