// Field configuration of a panel: its defaults, and the registry by which Grafana applies defaults and overrides.
import {
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  FieldConfigOptionsRegistry,
  identityOverrideProcessor,
  numberOverrideProcessor,
  thresholdsOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';

import { DEFAULTS } from './plugin_defaults.js';

const CUSTOM = 'custom.';

/** How values of the options that all panels have are read. */
const STANDARD = {
  actions: identityOverrideProcessor,
  color: identityOverrideProcessor,
  decimals: numberOverrideProcessor,
  description: identityOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  fieldMinMax: identityOverrideProcessor,
  filterable: identityOverrideProcessor,
  links: dataLinksOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  max: numberOverrideProcessor,
  min: numberOverrideProcessor,
  noValue: identityOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  unit: identityOverrideProcessor,
};

/** Give the field configuration of a panel, completed by what its type assumes. */
export function configOf({ type, fieldConfig = {} }) {
  const { defaults = {}, overrides = [] } = fieldConfig;
  const assumed = DEFAULTS[type] ?? { custom: {} };
  return { defaults: { ...assumed, ...defaults, custom: { ...assumed.custom, ...defaults.custom } }, overrides };
}

/** Make the registry of all options that a field configuration uses. */
export function registryOf({ defaults, overrides }) {
  const overridden = overrides.flatMap((one) => one.properties).map((one) => one.id);
  const own = overridden.filter((id) => id.startsWith(CUSTOM)).map((id) => id.slice(CUSTOM.length));
  const custom = new Set([...Object.keys(defaults.custom), ...own]);
  return new FieldConfigOptionsRegistry(() => [
    ...Object.entries(STANDARD).map(([id, process]) => option(id, id, process, false)),
    ...[...custom].map((path) => option(`${CUSTOM}${path}`, path, identityOverrideProcessor, true)),
  ]);
}

function option(id, path, process, isCustom) {
  const unused = { editor: () => null, override: () => null, settings: {} };
  return { id, path, name: id, process, isCustom, shouldApply: () => true, ...unused };
}
