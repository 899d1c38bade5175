import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Misuse } from '../../src/commands/shared/arguments.ts'
import { readScenarioArguments, scenario } from '../../src/commands/break/scenario.ts'

const misuse = (pattern: RegExp) => (error: unknown) => error instanceof Misuse && pattern.test(error.message)

test('a run is as the scenario says, unless the arguments say otherwise', () => {
  assert.deepEqual(readScenarioArguments(['run', 'hang']), {
    what: 'run',
    names: ['hang'],
    server: undefined,
    others: '*',
    allowWrites: false,
    durationMs: undefined,
    rate: undefined,
    observesOnly: false,
    tool: undefined,
    data: 'http://127.0.0.1:8080',
    junit: undefined,
    json: false,
    control: 'http://127.0.0.1:8081',
    token: undefined,
  })
  const said = [
    '--server',
    'a*',
    '--others',
    'b*',
    '--no-traffic',
    '--json',
    '--junit',
    'report.xml',
    '--duration',
    '90s',
    '--allow-writes',
    '--control',
    'https://b',
    '--token',
    't',
  ]
  assert.deepEqual(readScenarioArguments([...said, 'run', './mine.yaml', 'hang']), {
    what: 'run',
    names: ['./mine.yaml', 'hang'],
    server: 'a*',
    others: 'b*',
    allowWrites: true,
    durationMs: 90_000,
    rate: undefined,
    observesOnly: true,
    tool: undefined,
    data: 'http://127.0.0.1:8080',
    junit: 'report.xml',
    json: true,
    control: 'https://b',
    token: 't',
  })
})

test('help comes before all else that is asked for', () => {
  assert.deepEqual(readScenarioArguments(['run', '--help']), { what: 'help' })
  assert.deepEqual(readScenarioArguments(['list']), { what: 'list' })
})

test('arguments that make no sense are named', () => {
  for (const args of [[], ['list', 'all'], ['play', 'one']])
    assert.throws(() => readScenarioArguments(args), misuse(/^expected list, or run NAME$/), args.join(' '))
  assert.throws(() => readScenarioArguments(['run']), misuse(/^NAME is missing/))
  assert.throws(() => readScenarioArguments(['run', 'one', '--loud']), misuse(/--loud/))
  assert.throws(
    () => readScenarioArguments(['run', 'one', '--control', '8081']),
    misuse(/--control must be .*"8081"/),
  )
  for (const length of ['soon', '999ms'])
    assert.throws(
      () => readScenarioArguments(['run', 'one', '--duration', length]),
      misuse(/--duration: .* from 1s/),
    )
})

test('a run makes as many calls as it is told, of tools that may be named, or none', () => {
  const traffic = (...args: string[]) => {
    const asked = readScenarioArguments(['run', 'hang', ...args])
    assert.ok(asked.what === 'run')
    const { rate, observesOnly, tool, data } = asked
    return { rate, observesOnly, tool, data }
  }
  const data = 'http://127.0.0.1:8080'
  const none = { rate: undefined, observesOnly: false, tool: undefined, data }
  assert.deepEqual(traffic(), none)
  assert.deepEqual(traffic('--traffic', '20'), { ...none, rate: 20 })
  assert.deepEqual(traffic('--no-traffic'), { ...none, observesOnly: true })
  assert.deepEqual(traffic('--tool', 'get_*', '--data', 'http://b:1/'), {
    ...none,
    tool: 'get_*',
    data: 'http://b:1',
  })
  assert.throws(() => traffic('--traffic', '0'), misuse(/at least 1/))
  assert.throws(() => traffic('--traffic', '101'), misuse(/from 0 to 100/))
  assert.throws(() => traffic('--no-traffic', '--tool', 'a'), misuse(/--no-traffic goes neither/))
  assert.throws(() => traffic('--no-traffic', '--traffic', '1'), misuse(/--no-traffic goes neither/))
  assert.throws(() => readScenarioArguments(['run', 'all', 'hang']), misuse(/all stands for every name/))
})

test('the list says which scenarios show nothing over stdio', async () => {
  const lines: string[] = []
  const out = {
    stdout: (line: string) => void lines.push(line),
    stderr: (line: string) => void lines.push(line),
  }
  assert.equal(await scenario(['list'], out, {}), 0, lines.join('\n'))
  const limited = (mark: string) =>
    lines.filter((line) => line.endsWith(` (Servers over ${mark} only.)`)).map((line) => line.split(' ')[0])
  assert.deepEqual(limited('http or sse'), [
    'dependency-then-outage',
    'outage-and-recovery',
    'rate-limited',
    'token-expired',
    'upstream-503',
  ])
  assert.deepEqual(limited('http'), ['malformed-replies'])
})
