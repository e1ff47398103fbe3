// Bundles the page of `page/` into `dist/`, which take.mjs serves to Chromium on loopback.
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

const KILOBYTES_EXPECTED = 20_000; // Grafana's components are large; the page is read from the local disk

export default defineConfig({
  root: 'page',
  base: './',
  plugins: [react()],
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: 'esnext',
    chunkSizeWarningLimit: KILOBYTES_EXPECTED,
    reportCompressedSize: false,
  },
});
