import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import { freePort } from '../e2e/support/everything.ts'
import { cleanUp, newFolder } from '../e2e/support/gateway.ts'
import { Program } from '../e2e/support/program.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { bound } from '../support/bound.ts'
import { until } from '../support/until.ts'
import { pythonFor, readCommands, scriptsIn, withNewerPackage } from './commands.ts'
import { readPages } from './pages.ts'
import { main } from '../support/main.ts'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../../../', import.meta.url))

const { typed, leftOut, ts, python } = await readCommands({ slow: false })

let program: Program
let addresses: { readonly data: string; readonly control: string }
let env: NodeJS.ProcessEnv

/** What a page types, as it stands there but for the addresses and where the command is. */
async function type(script: string): Promise<string> {
  const { data, control } = addresses
  const home = await newFolder()
  for (const name of ['config', 'deploy', 'node_modules']) await symlink(join(root, name), join(home, name))
  const prelude = `set -e
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
npx() {
  shift
  local at=()
  case "$1" in
    status | chaos | experiment | logs | token) at=(--control '${control}') ;;
    scenario) at=(--control '${control}'); test "$2" = list && at=() || at+=(--data '${data}') ;;
  esac
  '${process.execPath}' '${main}' "$@" "\${at[@]}"
}
`
  const text = script
    .replaceAll('127.0.0.1:8080', new URL(data).host)
    .replaceAll('127.0.0.1:8081', new URL(control).host)
    .replaceAll('3001', String(await freePort()))
  const { stdout, stderr } = await run('bash', ['-c', prelude + text], { cwd: home, env, maxBuffer: 2 ** 24 })
  return stdout + stderr
}

before(async () => {
  const folder = await newFolder()
  await mkdir(join(folder, 'tmp'))
  // The token and what the servers write lie there.
  const own = { XDG_RUNTIME_DIR: folder, TMPDIR: join(folder, 'tmp') }
  env = bound({ ...process.env, ...own })
  const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>
  }
  const [, config = ''] = /start --config (\S+)$/.exec(scripts.start ?? '') ?? []
  const { mcpServers } = parse(await readFile(join(root, config), 'utf8')) as { mcpServers: object }
  program = new Program([main, 'start', '--config', config, '--port', '0'], { cwd: root, env: own })
  addresses = await program.line('it listens', (line) =>
    line.includes('"listening"') ? (JSON.parse(line) as typeof addresses) : undefined,
  )
  await until('all servers are up', async () => {
    const { servers } = (await (await fetch(`${addresses.data}/readyz`)).json()) as { servers: object }
    const states = Object.values(servers)
    return states.length === Object.keys(mcpServers).length && states.every((state) => state === 'up')
  })
})

after(cleanUp)

for (const { page, script, prints } of typed) {
  test(`what ${page} types works with the gateway that npm start runs`, async () => {
    const said = await type(script)
    for (const words of prints) assert.match(said, words)
  })
}

test('what is typed by no test is said with the reason', (t) => {
  for (const one of leftOut) t.diagnostic(`not run: ${one}`)
  assert.ok(typed.length > 5)
})

/** A program of a page, as it stands there but for the address; resolves to what it prints. */
async function printed(command: string, name: string, text: string): Promise<string> {
  const home = await newFolder()
  await symlink(join(root, 'node_modules'), join(home, 'node_modules'))
  await writeFile(join(home, name), text.replaceAll('127.0.0.1:8080', new URL(addresses.data).host))
  return (await run(command, [name], { cwd: home })).stdout
}

test('programs of the pages work with it, and with the newer package as the page says', async () => {
  assert.ok(ts.length > 0)
  for (const text of ts) {
    const newer = withNewerPackage(text)
    assert.notEqual(newer, text)
    for (const one of [text, newer])
      assert.match(await printed(process.execPath, 'program.mjs', one), /Echo: hello/)
  }
})

test('programs in Python work with it', async (t) => {
  assert.ok(python.length > 0)
  const interpreter = await pythonFor(process.env)
  if (interpreter === undefined) return t.skip('needs Python with version 2 of mcp: see .ci/python.sh')
  for (const text of python) assert.match(await printed(interpreter, 'program.py', text), /Echo: hello/)
})

test('every npm script that a page names is there', async () => {
  const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { scripts: object }
  const named = new Set((await readPages()).flatMap(({ text }) => scriptsIn(text)))
  assert.ok(named.size > 3, [...named].join())
  assert.deepEqual(
    [...named].filter((name) => !(name in scripts)),
    [],
  )
})

test('faults reach the tools that say of themselves that they only read', async () => {
  await type('npx breakwater chaos inject memory conn.latency --delay 1ms')
  const client = await RawClient.open(`${addresses.data}/mcp`)
  await client.call('memory__read_graph', {})
  assert.match(await type('npx breakwater status'), /^runtime-\d+ .* 1$/m)
})

test('the gateway ends in order after all of it', async () => {
  program.signal('SIGTERM')
  assert.equal((await program.ended).code, 0)
})
