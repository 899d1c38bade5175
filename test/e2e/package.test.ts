import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { access, cp, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { cleanUp, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'

const root = fileURLToPath(new URL('../../..', import.meta.url))
const run = promisify(execFile)

/** A user's folder with the package from `npm pack` installed. */
let home: string
/** The extracted package. */
let packed: string
let command: string

before(async () => {
  // A copy without build output, so the shared folder stays unchanged.
  const source = join(await newFolder(), 'source')
  await mkdir(source)
  for (const name of await readdir(root)) {
    if (['node_modules', 'build', 'dist', '.git', 'test', 'bench', 'deploy'].includes(name)) continue
    await cp(join(root, name), join(source, name), { recursive: true })
  }
  await symlink(join(root, 'node_modules'), join(source, 'node_modules'))
  // The build has checked the types already, which takes half a minute: here the script only notes its call.
  const manifest = JSON.parse(await readFile(join(source, 'package.json'), 'utf8')) as { scripts: object }
  const scripts = { ...manifest.scripts, types: 'mkdir asked-for-types' }
  await writeFile(join(source, 'package.json'), JSON.stringify({ ...manifest, scripts }))
  home = await newFolder()
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', home], { cwd: source })
  const [{ filename = '' } = {}] = JSON.parse(stdout.slice(stdout.indexOf('['))) as { filename?: string }[]
  await access(join(source, 'asked-for-types'))
  await run('tar', ['-xzf', filename], { cwd: home })
  // The layout npm makes, but dependencies are links to the project's instead of downloads.
  const modules = join(home, 'node_modules')
  await mkdir(join(modules, '.bin'), { recursive: true })
  packed = join(modules, 'breakwater')
  await cp(join(home, 'package'), packed, { recursive: true })
  await symlink(join(root, 'node_modules'), join(packed, 'node_modules'))
  const { bin } = JSON.parse(await readFile(join(packed, 'package.json'), 'utf8')) as {
    bin: { breakwater: string }
  }
  command = join(modules, '.bin', 'breakwater')
  await symlink(join(packed, bin.breakwater), command)
})

after(cleanUp)

test('the package that npm packs is built first, and its command can be run', async () => {
  await access(join(packed, 'dist', 'main.js'))
  const text = await readFile(command, 'utf8')
  assert.match(text, /^#!\/usr\/bin\/env node\n/)
  const { version } = JSON.parse(await readFile(join(packed, 'package.json'), 'utf8')) as { version: string }
  assert.equal((await run(command, ['--version'], { cwd: home })).stdout, `${version}\n`)
  assert.match(
    (await run(command, [], { cwd: home })).stdout,
    /no config in this folder[\s\S]*breakwater init/,
  )
})

test('the package has the files the program reads, and no files only a checkout needs', async () => {
  assert.match((await run(command, ['scenario', 'list'], { cwd: home })).stdout, /^retry-storm /m)
  const gameDay = join(packed, 'config', 'gamedays', 'first-look.yaml')
  const checked = await run(command, ['gameday', 'validate', gameDay], { cwd: home })
  assert.match(checked.stdout, /GameDay first-look, 2 experiments/)
  const { stdout } = await run(command, ['validate', join(packed, 'config', 'reference.yaml')], {
    cwd: home,
    env: { ...process.env, SEARCH_KEY: 'x', CONTROL_TOKEN: 'a-token-of-enough-letters' },
  })
  assert.match(stdout, /is valid/)
  const names = (await readdir(packed)).filter((name) => name !== 'node_modules').sort()
  assert.deepEqual(names, ['CHANGELOG.md', 'LICENSE', 'README.md', 'config', 'dist', 'docs', 'package.json'])
})

test("init and start in the user's folder make a gateway that listens", async () => {
  await run(command, ['init'], { cwd: home })
  const args = [join(packed, 'dist', 'main.js'), 'start', '--port', '0']
  // The server would come from a registry; tests do without.
  const env = { XDG_RUNTIME_DIR: home, npm_config_offline: 'true' }
  const program = new Program(args, { cwd: home, env })
  await program.line('it listens', (line) => (line.includes('"listening"') ? line : undefined))
  program.signal('SIGTERM')
  assert.equal((await program.ended).code, 0)
})
