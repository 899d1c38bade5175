// Puts the modules of src together into few files, in dist or the folder that is named: Node takes longer to find and
// read a module than to run it. Packages stay what npm installs. Types are not looked at: `npm run types` does that.
import { existsSync } from 'node:fs'
import { chmod, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { rolldown } from 'rolldown'

const [folder = 'dist'] = process.argv.slice(2)
const [made, before] = [`${folder}.new`, `${folder}.old`]
// It is replaced as a whole, so it must be one of ours.
if (existsSync(folder) && !existsSync(join(folder, 'main.js')))
  throw new Error(`${folder} was not made by this program: remove it yourself`)

const { dependencies, peerDependencies } = JSON.parse(await readFile('package.json', 'utf8'))
const packages = Object.keys({ ...dependencies, ...peerDependencies })

const bundle = await rolldown({
  // Programs and threads of their own are started from files beside that of who starts them: all lie in one folder.
  input: {
    main: 'src/main.ts',
    'records-process': 'src/gateway/records-process.ts',
    supervisor: 'src/upstreams/stdio/supervisor.ts',
    'load-worker': 'src/config/load-worker.ts',
    'judge-worker': 'src/experiments/judge-worker.ts',
    'report-worker': 'src/experiments/report-worker.ts',
    'docs-server': 'src/load/shop/docs-server.ts',
    'sql-process': 'src/commands/evidence/sql-process.ts',
  },
  external: (id) =>
    id.startsWith('node:') || packages.some((name) => id === name || id.startsWith(`${name}/`)),
  platform: 'node',
  // Whatever it is not sure about, such as an import of what is no dependency, is a mistake.
  onLog(level, { message }) {
    if (level === 'warn') throw new Error(message)
  },
})
await bundle.write({
  dir: made,
  cleanDir: true,
  format: 'esm',
  chunkFileNames: '[name].js',
  minifyInternalExports: false,
})
await bundle.close()
await chmod(join(made, 'main.js'), 0o755)

// A gateway that runs from there finds its files all the time but for a moment.
await rm(before, { recursive: true, force: true })
if (existsSync(folder)) await rename(folder, before)
await rename(made, folder)
await rm(before, { recursive: true, force: true })
