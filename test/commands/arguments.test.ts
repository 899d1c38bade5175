import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  listed,
  Misuse,
  optionLines,
  optionsOf,
  readArguments,
  runCommand,
} from '../../src/commands/shared/arguments.ts'
import { chaos } from '../../src/commands/break/chaos.ts'
import { http } from '../../src/commands/run/http.ts'
import { scenario } from '../../src/commands/break/scenario.ts'
import { stdio } from '../../src/commands/run/stdio.ts'
import { token } from '../../src/commands/run/token.ts'

const options = {
  file: { kind: 'text', value: 'FILE', about: 'what to read' },
  strict: { kind: 'flag', about: 'whether to mind' },
  journal: { kind: 'list', value: 'FILE', about: 'may be repeated' },
  port: { kind: 'integer', max: 65_535, value: 'PORT', default: '8900', about: 'where' },
  rate: { kind: 'number', value: 'RATE', about: 'a share' },
  last: { kind: 'duration', min: 1_000, value: 'DURATION', default: '1h', about: 'how far back' },
  level: { kind: 'choice', of: ['info', 'warn'], value: 'LEVEL', default: 'info', about: 'how much' },
  control: { kind: 'url', value: 'URL', about: 'whom to ask' },
} as const

const read = (...args: string[]) => readArguments(args, { options, positionals: ['NAME'] })

function printed() {
  const said = { stdout: '', stderr: '' }
  const out = {
    stdout: (line: string) => void (said.stdout += `${line}\n`),
    stderr: (line: string) => void (said.stderr += `${line}\n`),
  }
  return { said, out }
}

test('a missing option has its default, false for a flag, and an empty list for a list', () => {
  assert.deepEqual(read('me'), {
    help: false,
    positionals: ['me'],
    values: {
      file: undefined,
      strict: false,
      journal: [],
      port: 8_900,
      rate: undefined,
      last: 3_600_000,
      level: 'info',
      control: undefined,
    },
  })
})

test('options are read by their kind, before and after other arguments', () => {
  const all = [
    '--file',
    'a',
    '--strict',
    '--journal=1',
    'me',
    '--journal',
    '2',
    '--port',
    '0',
    '--rate',
    '0.5',
  ]
  const found = read(...all, '--last', '90s', '--level', 'warn', '--control', 'https://host/', '--file=-b')
  assert.deepEqual(!found.help && found.values, {
    file: '-b',
    strict: true,
    journal: ['1', '2'],
    port: 0,
    rate: 0.5,
    last: 90_000,
    level: 'warn',
    control: 'https://host/',
  })
})

test('arguments after -- are no options', () => {
  const found = readArguments(['--strict', '--', 'program', '--file', '-h'], { options })
  assert.deepEqual(!found.help && found.positionals, ['program', '--file', '-h'])
})

test('help works beside all other known arguments, and checks none of them', () => {
  for (const args of [['--help'], ['-h'], ['too', 'many', '--port', 'none', '-h']])
    assert.deepEqual(read(...args), { help: true })
  assert.throws(() => read('--help', '--nothing'), Misuse)
})

test('numbers may be written as people and programs write them', () => {
  for (const [text, rate] of [
    ['1e-3', 0.001],
    ['.5', 0.5],
    ['2.', 2],
    ['+0.25', 0.25],
    ['1E2', 100],
  ] as const) {
    const given = read('me', '--rate', text)
    assert.equal(!given.help && given.values.rate, rate)
  }
  const given = read('me', '--port=8e3')
  assert.equal(!given.help && given.values.port, 8_000)
})

test('an error names the mistake and a suggestion', () => {
  for (const [args, message] of [
    [['me', '--jornal', 'x'], 'unknown option --jornal; did you mean --journal?'],
    [['me', '--hepl'], 'unknown option --hepl; did you mean --help?'],
    [['me', '--zzzzz'], 'unknown option --zzzzz'],
    [['me', '-x'], 'unknown option -x'],
    [['me', '--__proto__'], 'unknown option --__proto__'],
    [['me', '--file'], '--file needs a value: FILE'],
    [['me', '--file', '--strict'], '--file needs a value; write a value beginning with - as --file=FILE'],
    [['me', '--strict=no'], '--strict takes no value'],
    [['me', '--port', '65536'], '--port must be a whole number from 0 to 65535, not "65536"'],
    [['me', '--port', '1.5'], '--port must be a whole number from 0 to 65535, not "1.5"'],
    [['me', '--rate', 'much'], '--rate must be a number, not "much"'],
    [['me', '--port', ''], '--port must be a whole number from 0 to 65535, not ""'],
    [['me', '--rate', ' '], '--rate must be a number, not " "'],
    [['me', '--rate', '0x10'], '--rate must be a number, not "0x10"'],
    [['me', '--rate', 'NaN'], '--rate must be a number, not "NaN"'],
    [['me', '--rate', '1e400'], '--rate must be a number, not "1e400"'],
    [['me', '--rate=-1'], '--rate must be at least 0, not "-1"'],
    [['me', '--level', 'loud'], '--level must be one of info, warn, not "loud"'],
    [['me', '--control', 'host:1'], '--control must be a URL such as http://127.0.0.1:8080, not "host:1"'],
    [[], 'NAME is missing'],
    [['me', 'too'], 'unexpected argument "too"'],
  ] as const)
    assert.throws(
      () => read(...args),
      (error) => error instanceof Misuse && error.message === message,
      message,
    )
  assert.throws(() => read('me', '--last', '999ms'), /^Error: --last: .* from 1s/)
})

test('a usage tells of each option, its default and who has it', () => {
  const { file, port, strict } = options
  assert.equal(
    optionLines([
      ...listed({ file }),
      ...optionsOf({ http: { options: { port } }, run: {} }),
      ...listed({ strict }),
    ]),
    [
      '  --file FILE             what to read',
      '  --port PORT             where (default: 8900)  [http]',
      '  --strict                whether to mind',
      '  --help                  this text',
    ].join('\n'),
  )
})

test('a misused command names the mistake and its usage, even when found late; defects are rethrown', async () => {
  const line = { usage: 'breakwater do: the usage', options }
  const { said, out } = printed()
  assert.equal(await runCommand(['--rate', '1'], line, out, async ({ rate = 0 }) => rate + 6), 7)
  assert.equal(await runCommand(['-x'], line, out, async () => 0), 2)
  assert.equal(said.stderr, 'breakwater do: unknown option -x\n\nHow it is used: breakwater do --help\n')
  assert.equal(await runCommand([], line, out, () => Promise.reject(new Misuse('no'))), 2)
  const hyphened = printed()
  await runCommand(['-x'], { usage: 'breakwater do-it FILE', options }, hyphened.out, async () => 0)
  assert.match(hyphened.said.stderr, /^breakwater do-it: .*\n\nHow it is used: breakwater do-it --help\n$/)
  await assert.rejects(
    runCommand([], line, out, () => Promise.reject(new Error('defect'))),
    /defect/,
  )
})

test('every command explains itself, and refuses unknown arguments', async () => {
  for (const command of [chaos, http, scenario, stdio, token]) {
    const asked = printed()
    assert.equal(await command(['--help'], asked.out, {}), 0)
    assert.match(asked.said.stdout, /^breakwater [\s\S]*--help {18}this text/)
    const args = command === chaos ? ['status', '--helo'] : ['--helo']
    const wrong = printed()
    assert.equal(await command(args, wrong.out, {}), 2)
    assert.match(
      wrong.said.stderr,
      /^breakwater [a-z]+: unknown option --helo; did you mean --help\?\n\nHow it is used: breakwater [a-z]+ --help$/m,
    )
  }
})
