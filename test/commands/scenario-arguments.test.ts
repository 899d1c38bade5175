import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Misuse } from '../../src/commands/arguments.ts'
import { readScenarioArguments, scenario } from '../../src/commands/scenario.ts'

const misuse = (pattern: RegExp) => (error: unknown) => error instanceof Misuse && pattern.test(error.message)

test('a run hits all servers for as long as the scenario says, unless the arguments say otherwise', () => {
  assert.deepEqual(readScenarioArguments(['run', 'hang']), {
    what: 'run',
    name: 'hang',
    aim: { server: '*', allowWrites: false },
    durationMs: undefined,
    traffic: undefined,
    control: 'http://127.0.0.1:8081',
    token: undefined,
  })
  const said = [
    '--server',
    'a*',
    '--duration',
    '90s',
    '--allow-writes',
    '--control',
    'https://b',
    '--token',
    't',
  ]
  assert.deepEqual(readScenarioArguments([...said, 'run', './mine.yaml']), {
    what: 'run',
    name: './mine.yaml',
    aim: { server: 'a*', allowWrites: true },
    durationMs: 90_000,
    traffic: undefined,
    control: 'https://b',
    token: 't',
  })
})

test('help comes before all else that is asked for', () => {
  assert.deepEqual(readScenarioArguments(['run', '--help']), { what: 'help' })
  assert.deepEqual(readScenarioArguments(['list']), { what: 'list' })
})

test('arguments that make no sense are named', () => {
  for (const args of [[], ['list', 'all'], ['run'], ['run', 'one', 'two'], ['play', 'one']])
    assert.throws(() => readScenarioArguments(args), misuse(/^expected list, or run NAME$/), args.join(' '))
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

test('a run makes calls itself when it is told how many, of tools that may be named', () => {
  const traffic = (...args: string[]) => {
    const asked = readScenarioArguments(['run', 'hang', ...args])
    return asked.what === 'run' ? asked.traffic : undefined
  }
  const data = 'http://127.0.0.1:8080'
  assert.deepEqual(traffic('--traffic', '20'), { rate: 20, tool: undefined, data })
  assert.deepEqual(traffic('--traffic', '1', '--tool', 'get_*', '--data', 'http://b:1/'), {
    rate: 1,
    tool: 'get_*',
    data: 'http://b:1',
  })
  assert.throws(() => traffic('--traffic', '0'), misuse(/at least 1/))
  assert.throws(() => traffic('--traffic', '101'), misuse(/from 0 to 100/))
  assert.throws(() => traffic('--tool', 'a'), misuse(/--traffic/))
})

test('the list says which scenarios show nothing over stdio', async () => {
  const lines: string[] = []
  const out = {
    stdout: (line: string) => void lines.push(line),
    stderr: (line: string) => void lines.push(line),
  }
  assert.equal(await scenario(['list'], out, {}), 0)
  const limited = lines.filter((line) => line.endsWith(' (Servers over http or sse only.)'))
  assert.deepEqual(
    limited.map((line) => line.split(' ')[0]),
    ['outage-and-recovery', 'rate-limited', 'token-expired', 'upstream-503'],
  )
})
