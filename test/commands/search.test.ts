import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { search } from '../../src/commands/compare/sim/search.ts'
import { loadConfig } from '../../src/config/load.ts'
import { folder } from '../config/files.ts'

async function run(...args: string[]) {
  const [stdout, stderr]: [string[], string[]] = [[], []]
  const out = { stdout: (line: string) => stdout.push(line), stderr: (line: string) => stderr.push(line) }
  const code = await search(args, out, {})
  return { code, text: stdout.join('\n'), said: stderr.join('\n') }
}

const small = [
  '--slo=tcsr=0.98',
  '--tools=a/one,a/two,b/one',
  '--tasks=60',
  '--fan-out=4',
  '--runs=2',
  '--population=18',
  '--findings=2',
]

// Outside of tests: within a test, each promise of a simulation costs several times as much.
const path = await mkdtemp(join(tmpdir(), 'breakwater-search-'))
const [whole, parts] = [join(path, 'whole.json'), join(path, 'parts.json')]
const once = await run(...small, '--generations=3', '--json', '--checkpoint', whole)
await run(...small, '--generations=1', '--checkpoint', parts)
const begun = await readFile(parts, 'utf8')
const resumed = await run(...small, '--generations=3', '--json', '--resume', parts)
const out = join(path, 'found')
// Files of an earlier run with more finds, and a file of no run.
await mkdir(out)
await writeFile(join(out, 'finding-77.yaml'), '# of an earlier run')
await writeFile(join(out, 'finding-of-mine.yaml'), '# kept')
const written = await run(...small, '--generations=2', '--out', out, '--json')

after(() => rm(path, { recursive: true }))

test('arguments that make no sense are refused with what to do', async () => {
  for (const [args, why] of [
    [['--slo=tscr=0.9'], /--slo: there is no "tscr"; did you mean "tcsr"\?/],
    [['--slo=nonsense=0.9'], /there are tcsr, eta, blast_radius, p95/],
    [['--slo=eta=1'], /above 0 and below 1, such as eta=0.999, not "eta=1"/],
    [['--slo=p95=soon'], /--slo: "soon" is not a value of p95: expected a duration/],
    [['--slo=p95=100=3'], /--slo: "100=3" is not a value of p95/],
    [['--slo=p95<100ms'], /a duration above 0, such as p95=300ms, not "p95<100ms"/],
    [['--tasks=0'], /--tasks must be a whole number from 1 to 100000, not "0"/],
    [['--fan-out=0'], /--fan-out must be a whole number from 1 to 1000/],
    [['--population=3'], /--population must be a whole number from 4 to 1000/],
    [['--generations=0'], /--generations must be a whole number from 1 to 1000/],
    [['--runs=1'], /--runs must be a whole number from 2 to 100/],
    [['--slo=tcsr=0.9999'], /allows 1.0 failures in the 5 runs .* raise --tasks/],
    [['--tools=a'], /expected names as server\/tool/],
    [['--tools=a/b,a/b'], /each name once/],
  ] as const) {
    const { code, said } = await run(...args)
    assert.equal(code, 2, args.join(' '))
    assert.match(said, why)
  }
})

test('a search that cannot run says why', async (t) => {
  const path = await folder(t, {
    'bad.yaml': 'policies: { defaults: { retry: { maxRetries: 99 } } }',
    'sets.yaml': 'policies: { sets: { cautious: { retry: { maxRetries: 0 } } } }',
  })
  const slow = await run(...small, '--slo=p95=10ms')
  assert.equal(slow.code, 1)
  assert.match(slow.said, /violated without any fault: p95 is 20.0 ms/)
  const bad = await run(...small, '--policies', join(path, 'bad.yaml'))
  assert.equal(bad.code, 1)
  assert.match((await run(...small, '--out', join(path, 'bad.yaml', 'in'))).said, /--out: E(NOTDIR|EXIST)/)
  const unknown = await run(...small, '--policies', join(path, 'sets.yaml'), '--set=cautios')
  assert.equal(unknown.code, 1)
  assert.match(unknown.said, /no policy set "cautios"[:;] did you mean cautious\?/)
  assert.match((await run(...small, '--set=cautious')).said, /name its file with --policies or --config/)
  assert.match(bad.said, /bad\.yaml:1:\d+ .*maxRetries/)
})

test('a search that was interrupted goes on to the same bytes', async () => {
  assert.equal(once.code, 0)
  assert.equal(resumed.text, once.text)
  assert.equal(await readFile(parts, 'utf8'), await readFile(whole, 'utf8'))
  assert.deepEqual((await readdir(path)).sort(), ['found', 'parts.json', 'whole.json'])
})

test('a checkpoint that cannot be written ends the search, and leaves nothing behind', async (t) => {
  const path = await folder(t, {})
  await mkdir(join(path, 'folder'))
  const { code, said } = await run(...small, '--checkpoint', join(path, 'folder'))
  assert.equal(code, 1)
  assert.match(said, /cannot write .*folder: EISDIR/)
  assert.deepEqual(await readdir(path), ['folder'])
})

test('a checkpoint that does not fit is refused with what is wrong', async (t) => {
  const path = await folder(t, {})
  const file = join(path, 'search.json')
  const text = begun
  const refused = async (content: string, ...args: string[]) => {
    await writeFile(file, content)
    const { code, said } = await run(...small, '--generations=2', '--resume', file, ...args)
    assert.notEqual(code, 0)
    return said
  }
  assert.match(await refused(text.slice(0, 500)), /search\.json is no checkpoint, or incomplete/)
  assert.match(
    await refused(text.replace('"version":1', '"version":2')),
    /of version 2; this program reads version 1/,
  )
  assert.match(await refused('{}'), /no checkpoint of a search: version/)
  assert.match(
    await refused(text, '--tasks=70', '--seed=7'),
    /other options: tasks was 60, now 70; seed was 42, now 7/,
  )
  assert.match(await refused(text.replace('"generation":1', '"generation":5')), /has 5 generations already/)
  assert.match(
    await refused(text.replace(/"type":"[^"]+"/, '"type":"conn.teleport"')),
    /no checkpoint of a search: state\.population\.0\.0\.type Invalid option: expected one of "conn\.refused"/,
  )
  const { state, ...others } = JSON.parse(text) as { state: { population: unknown[] } }
  const shorter = { ...others, state: { ...state, population: state.population.slice(1) } }
  assert.match(await refused(JSON.stringify(shorter)), /it holds \d+ plans instead of \d+ for a generation/)
  const { said } = await run(...small, '--resume', join(path, 'none.json'))
  assert.match(said, /cannot read .*none\.json: ENOENT/)
})

test('plans that are written load as the block chaos of a gateway with these servers', async () => {
  const { code, text } = written
  assert.equal(code, 0)
  const { findings } = JSON.parse(text) as { findings: { plan: { type: string; rate: number }[] }[] }
  const all = await readdir(out)
  assert.ok(all.includes('finding-of-mine.yaml'))
  const files = all.filter((name) => name !== 'finding-of-mine.yaml')
  assert.equal(files.length, findings.length)
  assert.ok(files.length > 0)
  await mkdir(join(path, 'gateway'))
  for (const [at, file] of files.sort().entries()) {
    const config = join(path, 'gateway', 'breakwater.yaml')
    await writeFile(
      config,
      `gateway: { environment: test }
mcpServers:
  a: { url: "http://127.0.0.1:1/mcp", era: modern }
  b: { url: "http://127.0.0.1:2/mcp", era: modern }
chaos: { file: ../found/${file} }
`,
    )
    const loaded = await loadConfig(config, {})
    assert.ok(loaded.ok, JSON.stringify(loaded))
    const { chaos } = loaded.config
    assert.equal(chaos.enabled, false)
    assert.deepEqual(
      chaos.faults.map(({ type, rate }) => ({ type, rate })),
      findings[at]!.plan.map(({ type, rate }) => ({ type, rate })),
    )
    assert.match(await readFile(join(out, file), 'utf8'), /^# Slightly violates tcsr ≥ 98 %: tcsr /)
  }
})
