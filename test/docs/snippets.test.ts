import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import { cleanUp, newFolder } from '../e2e/support/gateway.ts'
import { Program } from '../e2e/support/program.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { until } from '../support/until.ts'
import { readPages } from './pages.ts'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../../../', import.meta.url))
const main = fileURLToPath(new URL('../../src/main.js', import.meta.url))

/** Blocks that no test types, by the page and a text in them, and why. */
const leftOut: readonly { readonly page: string; readonly text: string; readonly why: string }[] = [
  { page: 'README.md', text: 'npm ci', why: 'installs and starts what the test has running' },
  { page: 'docs/tutorial.md', text: 'npm ci', why: 'installs and starts what the test has running' },
  {
    page: 'docs/tutorial.md',
    text: 'breakwater demo',
    why: 'takes half a minute, and has a test of its own',
  },
  { page: 'docs/connect.md', text: 'claude mcp add', why: 'needs Claude Code' },
  { page: 'docs/kubernetes.md', text: 'kubectl apply', why: 'needs a cluster' },
  { page: 'docs/kubernetes.md', text: 'kubectl port-forward', why: 'needs a cluster' },
]

/** What has to be among what the blocks of a page print. */
const told: Readonly<Record<string, readonly RegExp[]>> = {
  'README.md': [
    /"Echo: hello"/,
    /fault-\d+: conn\.latency at memory for 1m$/m,
    /^runtime-\d+ +conn\.latency +memory\/\* /m,
    /^cleared 1 fault$/m,
    /gateway\.yaml is valid/,
  ],
  'docs/tutorial.md': [
    /^memory +up /m,
    /"Echo: hello"/,
    /"name":"memory__read_graph"/,
    /hit: .* delayed: the agent had to wait$/m,
    /^breakwater_fault_outcomes_total\{.*fate="delayed"\} [1-9]/m,
    /"code":-32603/,
    /"BW_BREAKER_OPEN"/,
    /^memory +read_graph +open .* 5 failures in a row$/m,
    /"entities"/,
    /^breakwater_breaker_transitions_total\{server="memory",tool="read_graph",.*state="open"\} [1-9]/m,
    /slow-long-tail +conn\.latency +injected [1-9]/,
    /breakwater\.yaml is valid/,
  ],
  'docs/chaos.md': [/^retry-storm /m, /injected [1-9]/],
  'docs/configuration.md': [/reference\.yaml is valid/, /gateway\.yaml is valid/],
  'docs/security.md': [/"ok":true/],
  'docs/troubleshooting.md': [/"status":"ready"/],
}

const pages = await readPages()
const isLeftOut = (page: string, text: string) =>
  leftOut.some((reason) => reason.page === page && text.includes(reason.text))
const typed = pages.flatMap(({ path, blocks }) => {
  const own = blocks.filter(({ language, text }) => language === 'sh' && !isLeftOut(path, text))
  return own.length === 0 ? [] : [{ path, script: own.map(({ text }) => text).join('') }]
})

let program: Program
let addresses: { readonly data: string; readonly control: string }
let env: NodeJS.ProcessEnv

/** What a page types, as it stands there but for the addresses and where the command is. */
async function type(script: string): Promise<string> {
  const { data, control } = addresses
  const home = await newFolder()
  for (const name of ['config', 'deploy']) await symlink(join(root, name), join(home, name))
  const prelude = `set -e
breakwater() {
  local at=()
  case "$1" in
    status | chaos | logs | token) at=(--control '${control}') ;;
    scenario) at=(--control '${control}'); test "$2" = list && at=() || at+=(--data '${data}') ;;
  esac
  '${process.execPath}' '${main}' "$@" "\${at[@]}"
}
npx() { shift; breakwater "$@"; }
`
  const text = script
    .replaceAll('127.0.0.1:8080', new URL(data).host)
    .replaceAll('127.0.0.1:8081', new URL(control).host)
    .replaceAll('/tmp/breakwater-tutorial', join(home, 'own'))
  const { stdout, stderr } = await run('bash', ['-c', prelude + text], { cwd: home, env, maxBuffer: 2 ** 24 })
  return stdout + stderr
}

before(async () => {
  const folder = await newFolder()
  await mkdir(join(folder, 'tmp'))
  // The token and what the servers write lie there.
  const own = { XDG_RUNTIME_DIR: folder, TMPDIR: join(folder, 'tmp') }
  env = { ...process.env, ...own }
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

for (const { path, script } of typed) {
  test(`what ${path} types works with the gateway that npm start runs`, async () => {
    const said = await type(script)
    for (const words of told[path] ?? []) assert.match(said, words)
  })
}

test('programs of the pages work with it', async () => {
  const programs = pages.flatMap(({ blocks }) => blocks.filter(({ language }) => language === 'ts'))
  assert.ok(programs.length > 0)
  const home = await newFolder()
  await symlink(join(root, 'node_modules'), join(home, 'node_modules'))
  const file = join(home, 'program.mjs')
  for (const { text } of programs) {
    await writeFile(file, text.replaceAll('127.0.0.1:8080', new URL(addresses.data).host))
    const { stdout } = await run(process.execPath, [file], { cwd: home })
    assert.match(stdout, /Echo: hello/)
  }
})

test('what a page is expected to print belongs to a page that types something', () => {
  const known = new Set(typed.map(({ path }) => path))
  assert.deepEqual(
    Object.keys(told).filter((path) => !known.has(path)),
    [],
  )
})

test('what is left out is there to be left out', () => {
  for (const { page, text } of leftOut) {
    const blocks = pages.find(({ path }) => path === page)?.blocks ?? []
    assert.ok(
      blocks.some((block) => block.language === 'sh' && block.text.includes(text)),
      `${page}: ${text}`,
    )
  }
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
