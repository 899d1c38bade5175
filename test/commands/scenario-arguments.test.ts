import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Misuse } from '../../src/commands/chaos/command.ts'
import { readArguments } from '../../src/commands/scenario/arguments.ts'

const misuse = (pattern: RegExp) => (error: unknown) => error instanceof Misuse && pattern.test(error.message)

test('a run hits all servers for as long as the scenario says, unless the arguments say otherwise', () => {
  assert.deepEqual(readArguments(['run', 'hang']), {
    what: 'run',
    name: 'hang',
    aim: { server: '*', allowWrites: false },
    durationMs: undefined,
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
  assert.deepEqual(readArguments([...said, 'run', './mine.yaml']), {
    what: 'run',
    name: './mine.yaml',
    aim: { server: 'a*', allowWrites: true },
    durationMs: 90_000,
    control: 'https://b',
    token: 't',
  })
})

test('help comes before all else that is asked for', () => {
  assert.deepEqual(readArguments(['run', '--help']), { what: 'help' })
  assert.deepEqual(readArguments(['list']), { what: 'list' })
})

test('arguments that make no sense are named', () => {
  for (const args of [[], ['list', 'all'], ['run'], ['run', 'one', 'two'], ['play', 'one']])
    assert.throws(() => readArguments(args), misuse(/^expected list, or run NAME$/), args.join(' '))
  assert.throws(() => readArguments(['run', 'one', '--loud']), misuse(/--loud/))
  assert.throws(
    () => readArguments(['run', 'one', '--control', '8081']),
    misuse(/--control must be .*"8081"/),
  )
  for (const length of ['soon', '999ms'])
    assert.throws(() => readArguments(['run', 'one', '--duration', length]), misuse(/--duration: .* from 1s/))
})
