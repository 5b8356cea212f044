// Build the editor into one file: node build.js FILE.
import {buildSync} from 'esbuild';

buildSync({
    entryPoints: ['editor.js'],
    bundle: true,
    minify: true,
    format: 'iife',
    target: 'es2022',
    legalComments: 'none',
    outfile: process.argv[2],
});
