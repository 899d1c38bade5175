// Puts the modules of src together into few files, in dist or the folder that is named: Node takes longer to find and
// read a module than to run it. Packages stay what npm installs. Types are not looked at: `npm run types` does that.
import { chmod } from 'node:fs/promises'
import { isAbsolute, join } from 'node:path'
import { rolldown } from 'rolldown'

const [folder = 'dist'] = process.argv.slice(2)

const bundle = await rolldown({
  // Programs and threads of their own are started from files beside that of who starts them: all lie in one folder.
  input: {
    main: 'src/main.ts',
    supervisor: 'src/upstreams/stdio/supervisor.ts',
    'load-worker': 'src/config/load-worker.ts',
    'judge-worker': 'src/experiments/judge-worker.ts',
    'report-worker': 'src/experiments/report-worker.ts',
    'docs-server': 'src/commands/demo/docs-server.ts',
  },
  external: (id) => !id.startsWith('.') && !isAbsolute(id),
  platform: 'node',
})
await bundle.write({
  dir: folder,
  cleanDir: true,
  format: 'esm',
  chunkFileNames: '[name].js',
  minifyInternalExports: false,
})
await chmod(join(folder, 'main.js'), 0o755)
