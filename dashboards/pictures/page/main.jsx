// Draws the board of /board.json. take.mjs then waits for `window.layout`, sets the window's height, and asks
// `window.drawn()` what is in each panel.
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import '@fontsource/inter/600.css';
import '@fontsource/roboto-mono/400.css';
import { createTheme, standardTransformers, standardTransformersRegistry, ThemeContext } from '@grafana/data';
import { GlobalStyles } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { Board } from './board.jsx';
import { framesOf } from './frames.js';
import { lookAt } from './in_sight.js';
import { VISUALIZATIONS } from './panel.jsx';
import { quiet } from './quiet.js';

registerTransformations();
window.layout = draw();

async function draw() {
  const given = await (await fetch('/board.json')).json();
  const theme = createTheme({ colors: { mode: given.theme } });
  const panels = await Promise.all(given.board.panels.map((panel) => prepared(panel, theme)));
  document.body.style.margin = '0';
  const root = document.getElementById('root');
  const ignore = () => {}; // a panel keeps its own error, see panel.jsx
  createRoot(root, { onCaughtError: ignore, onRecoverableError: ignore }).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Board given={given} panels={panels} theme={theme} />
    </ThemeContext.Provider>
  );
  await quiet();
  window.drawn = async () => {
    await quiet();
    return panels.filter((one) => one.type !== 'row').map(lookAt);
  };
  return { height: Math.ceil(root.getBoundingClientRect().height) };
}

/** Add the frames of a panel, with fields that are ready to be drawn, or the error that prevents it. */
async function prepared(panel, theme) {
  if (panel.type === 'row') {
    return panel;
  }
  if (!VISUALIZATIONS[panel.type]) {
    return { ...panel, frames: [], error: `panels of type ${panel.type} cannot be drawn` };
  }
  try {
    return { ...panel, frames: await framesOf(panel, theme) };
  } catch (error) {
    return { ...panel, frames: [], error: String(error?.message ?? error) };
  }
}

function registerTransformations() {
  const all = [...new Set(Object.values(standardTransformers))];
  standardTransformersRegistry.setInit(() =>
    all.map((transformation) => ({
      id: transformation.id,
      name: transformation.name,
      transformation: () => Promise.resolve(transformation),
      editor: () => null,
    }))
  );
}
