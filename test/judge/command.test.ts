import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { judge } from '../../src/commands/compare/judge/judge.ts'
import { ruleNames } from '../../src/judge/index.ts'
import { parseXml } from '../commands/xml.ts'
import { call, header } from '../sim/recorded.ts'
import { cleanTasks, faultyTasks, promises, recordingOf } from './generator.ts'
import { bought, lost } from './support.ts'

const contract = JSON.stringify(promises)

const both = recordingOf([...faultyTasks('duplicate_write', 8, 1), ...cleanTasks(32, 1)])

const workload = `name: work
tasks:
  - name: buying
    steps: [{ server: shop, tool: look }, { server: shop, tool: buy }]
    contract: { mustRun: [buy], polls: [look] }
  - name: reading
    steps: [{ server: docs, tool: read }]
`

/** A folder with recordings, and a function that runs the command there. */
async function setUp(t: TestContext, texts: Readonly<Record<string, string>> = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'judge-'))
  t.after(() => rm(folder, { recursive: true }))
  const files = {
    'both.jsonl': both,
    'clean.jsonl': recordingOf(cleanTasks(60, 2)),
    'contract.json': contract,
    'work.yaml': workload,
    ...texts,
  }
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  const run = async (...args: readonly string[]) => {
    const [output, errors]: [string[], string[]] = [[], []]
    const out = {
      stdout: (line: string) => void output.push(line),
      stderr: (line: string) => void errors.push(line.replaceAll(`${folder}/`, '')),
    }
    const full = args.map((arg) => (/\.(jsonl|yaml|json|xml|none)$/.test(arg) ? join(folder, arg) : arg))
    const code = await judge(full, out)
    return { code, output: output.join('\n').replaceAll(`${folder}/`, ''), errors: errors.join('\n') }
  }
  return Object.assign(run, { folder })
}

interface Finding {
  readonly rule: string
  readonly level: string
  readonly calls: readonly { readonly file: string; readonly line: number }[]
}

interface Json {
  readonly rules: readonly { readonly rule: string; readonly found: number; readonly decidable: number }[]
  readonly findings: readonly Finding[]
  readonly conditions: readonly object[]
}

interface Location {
  readonly physicalLocation: {
    readonly artifactLocation: { readonly uri: string }
    readonly region: { readonly startLine: number }
  }
}

type Text = Readonly<Record<'shortDescription' | 'fullDescription' | 'help', { readonly text: string }>>

/** The parts of a SARIF log that readers need. */
interface Sarif {
  readonly version: string
  readonly $schema: string
  readonly runs: readonly {
    readonly tool: {
      readonly driver: {
        readonly name: string
        readonly rules: readonly (Text & {
          readonly id: string
          readonly defaultConfiguration: { readonly level: string }
        })[]
      }
    }
    readonly columnKind: string
    readonly invocations: readonly { readonly executionSuccessful: boolean }[]
    readonly results: readonly {
      readonly ruleId: string
      readonly ruleIndex: number
      readonly level: string
      readonly message: { readonly text: string }
      readonly locations: readonly Location[]
      readonly relatedLocations?: readonly Location[]
      readonly properties: { readonly level: string }
    }[]
  }[]
}

const text = (...lines: readonly object[]) =>
  [header(), ...lines].map((line) => `${JSON.stringify(line)}\n`).join('')

test('the report counts tasks by rule, and names the lines and the fault of each finding', async (t) => {
  const faults = [{ name: 'cut', type: 'conn.reset', side: 'client', fate: 'surfaced' }] as const
  const run = await setUp(t, {
    'one.jsonl': text(call(lost({ faults: [...faults] })), call(bought({ at: 20 })), {
      task: 'task',
      outcome: 'succeeded',
      at: 50,
    }),
  })
  const { code, output, errors } = await run('one.jsonl')
  assert.deepEqual([code, errors], [0, ''])
  assert.match(output, /^one\.jsonl: 1 task, 2 calls$/m)
  assert.match(output, /^blind_retry +1 of 1 tasks +100\.0 % +20\.7 % to 100\.0 %$/m)
  assert.match(output, /^ignored_partial +0 of 1 tasks +0\.0 % +0\.0 % to 79\.3 %$/m)
  assert.match(output, /^false_success +not decidable$/m)
  assert.match(output, /^ {2}false_success: 1 task, because no contract says which tools must run$/m)
  assert.match(
    output,
    /^proven blind_retry: the agent of task task repeats a write blindly\n {2}shop\/buy may have run, and was called again without a look, after the fault cut \(conn\.reset\)\n {2}one\.jsonl:2 one\.jsonl:3$/m,
  )
})

test('a baseline adds differences, and conditions decide the exit code', async (t) => {
  const run = await setUp(t)
  const usual = ['both.jsonl', '--contract', 'contract.json', '--baseline', 'clean.jsonl']
  const { code, output } = await run(...usual)
  assert.equal(code, 0)
  assert.match(output, /^duplicate_write +8 of 40 tasks +20\.0 % .* 0 of 60 +20\.0 % +8\.8 % to 34\.8 %$/m)
  const met = await run(...usual, '--fail-on', 'duplicate_write>0,runaway>0')
  assert.deepEqual([met.code, met.errors], [1, 'breakwater: duplicate_write>0 is met: 8 of 40 tasks'])
  const more = await run(...usual, '--fail-on', 'duplicate_write>baseline+19.9%')
  assert.equal(more.code, 1)
  const kept = await run(...usual, '--fail-on', 'duplicate_write>baseline+20%,duplicate_write>8')
  assert.deepEqual([kept.code, kept.errors], [0, ''])
})

test('a condition that nobody can check is no pass', async (t) => {
  const run = await setUp(t, { 'one.jsonl': text(call(), call({ at: 20 })) })
  const { code, errors } = await run('one.jsonl', '--fail-on', 'false_success>0')
  assert.deepEqual(
    [code, errors],
    [2, 'breakwater: false_success>0 cannot be checked: no task is decidable by false_success'],
  )
})

test('arguments that make no sense are refused with exit code 2', async (t) => {
  const run = await setUp(t)
  for (const [args, message] of [
    [[], /RECORDING is missing/],
    [['both.jsonl', 'clean.jsonl'], /unexpected argument/],
    [['both.jsonl', '--fail-on', 'nothing>0'], /--fail-on: there is no rule "nothing"/],
    [['both.jsonl', '--fail-on', 'runaway>>1'], /--fail-on: expected/],
    [['both.jsonl', '--fail-on', 'runaway>baseline'], /--fail-on runaway>baseline needs --baseline FILE/],
    [['both.jsonl', '--format', 'xml'], /--format must be one of text, json, junit, sarif/],
    [['both.jsonl', '--contract', 'missing.json'], /missing\.json cannot be read: no such file/],
    [
      ['both.jsonl', '--out', '/nowhere/report.json'],
      /^breakwater: --out .*nowhere\/report\.json cannot be written/,
    ],
    [['missing.jsonl'], /missing\.jsonl: there is no such file/],
    [['both.jsonl', '--baseline', 'missing.jsonl'], /missing\.jsonl: there is no such file/],
  ] as const) {
    const { code, output, errors } = await run(...args)
    assert.deepEqual([code, output], [2, ''], args.join(' '))
    assert.match(errors, message)
  }
})

test('a recording that is none, or of another format, is refused, and damage is noted', async (t) => {
  const line = `${JSON.stringify(call())}\n`
  const run = await setUp(t, {
    'headless.jsonl': line,
    'older.jsonl': `${JSON.stringify({ ...header(), breakwaterRecording: 1 })}\n${line}`,
    'blank.jsonl': '',
    'bare.jsonl': text(),
    'cut.jsonl': `${text(call(), call({ at: 20 }))}${line.slice(0, 50)}`,
    'huge.jsonl': `${text(call())}${'x'.repeat(17 * 1024 ** 2)}\n${line}`,
  })
  for (const [file, message] of [
    ['headless.jsonl', /its first line is no recording header$/],
    ['older.jsonl', /is a recording of format 1; this program reads format 2$/],
    ['blank.jsonl', /is empty: nothing has been recorded$/],
    ['bare.jsonl', /holds no call$/],
  ] as const) {
    const { code, errors } = await run(file)
    assert.equal(code, 2, file)
    assert.match(errors, message)
  }
  const cut = await run('cut.jsonl', '--contract', 'contract.json')
  assert.equal(cut.code, 0)
  assert.match(cut.output, /^note: cut\.jsonl: line 4 is cut off: 2 calls were read$/m)
  const huge = await run('huge.jsonl')
  assert.match(huge.output, /^huge\.jsonl: 1 task, 2 calls$/m)
  assert.match(huge.output, /^note: huge\.jsonl: line 3 holds no call: 2 calls were read$/m)
})

test('a contract is a file of its own, a list of kinds, or part of a workload', async (t) => {
  const tasks = [
    call({ task: 'a', at: 0 }),
    call({ task: 'a', at: 20, tool: 'buy', key: 'buy', effect: 'write' }),
    call({ task: 'b', at: 40, server: 'docs', tool: 'read', key: 'read' }),
    ...['a', 'b'].map((task) => ({ task, outcome: 'succeeded', at: 100 })),
  ]
  const run = await setUp(t, {
    'one.jsonl': text(...tasks),
    'kinds.json': JSON.stringify({
      kinds: [{ tools: ['shop/look', 'buy'], contract: { mustRun: ['buy'] } }],
    }),
    'odd.yaml': 'mustRun: [buy]\npols: [look]\n',
    'work-odd.yaml': workload.replace('mustRun', 'mustRan'),
  })
  const ofFalse = async (file: string) => {
    const { output } = await run('one.jsonl', '--contract', file, '--format', 'json')
    const { rules } = JSON.parse(output) as Json
    const { found, decidable } = rules.find(({ rule }) => rule === 'false_success')!
    return { found, decidable }
  }
  assert.deepEqual(await ofFalse('contract.json'), { found: 2, decidable: 2 })
  assert.deepEqual(await ofFalse('work.yaml'), { found: 0, decidable: 1 })
  assert.deepEqual(await ofFalse('kinds.json'), { found: 0, decidable: 1 })
  for (const [file, message] of [
    ['odd.yaml', /odd\.yaml:2:1 {2}pols {2}.*polls/],
    ['work-odd.yaml', /work-odd\.yaml:5:\d+ {2}tasks\[0\]\.contract\.mustRan {2}.*mustRun/],
  ] as const) {
    const { code, errors } = await run('one.jsonl', '--contract', file)
    assert.equal(code, 2)
    assert.match(errors, message)
  }
})

test('JSON has every rule, every finding with its lines, and the conditions', async (t) => {
  const run = await setUp(t)
  const args = ['both.jsonl', '--contract', 'contract.json', '--format', 'json', '--fail-on', 'runaway>0']
  const { code, output } = await run(...args)
  assert.equal(code, 0)
  const report = JSON.parse(output) as Json
  assert.deepEqual(
    report.rules.map(({ rule }) => rule),
    ruleNames,
  )
  const duplicates = report.findings.filter(({ rule }) => rule === 'duplicate_write')
  assert.equal(duplicates.length, 8)
  for (const { level, calls } of duplicates) {
    assert.ok(['proven', 'likely'].includes(level))
    for (const { file, line } of calls) {
      const { tool } = JSON.parse(both.split('\n')[line - 1]!) as { tool: string }
      assert.equal(file, 'both.jsonl')
      assert.match(tool, /^(place_order|notify)$/)
    }
  }
  assert.deepEqual(report.conditions, [{ condition: 'runaway>0', met: 'not_met' }])
})

test('JUnit has a case per rule, which fails by its findings, or by its condition if there are any', async (t) => {
  const run = await setUp(t)
  const casesOf = async (...more: readonly string[]) => {
    const { output } = await run('both.jsonl', ...more, '--format', 'junit')
    const [suite] = parseXml(output).children
    const cases = suite!.children
      .slice(1)
      .map(({ attributes, children }) => [attributes.name, children[0]?.name])
    return { attributes: suite!.attributes, cases: Object.fromEntries(cases) }
  }
  const { attributes, cases } = await casesOf('--contract', 'contract.json')
  const { tests, failures, skipped } = attributes
  assert.deepEqual([tests, failures, skipped], ['7', '2', '0'])
  assert.deepEqual(cases, {
    ...Object.fromEntries(ruleNames.map((rule) => [rule, 'system-out'])),
    duplicate_write: 'failure',
    // A write that is lost and repeated is both.
    blind_retry: 'failure',
  })
  const gated = await casesOf('--contract', 'contract.json', '--fail-on', 'blind_retry>0')
  assert.deepEqual([gated.cases.duplicate_write, gated.cases.blind_retry], ['system-out', 'failure'])
})

test('JUnit stays well-formed with any name of a tool', async (t) => {
  const tool = `<b a="1" b='2'>&amp; ]]> \u0000\u0007\u001b[31m\u202e\n\t\uffff \u{1f600}</b>`
  const run = await setUp(t, { 'odd.jsonl': text(call(bought({ tool })), call(bought({ tool, at: 20 }))) })
  const { output } = await run('odd.jsonl', '--format', 'junit')
  assert.equal(parseXml(output).attributes.failures, '1')
  const plain = await run('odd.jsonl')
  assert.doesNotMatch(plain.output, /[\u0000-\u0009\u001b\u202e]/)
})

test('SARIF has the required properties: rules with help, and results with a level and a place', async (t) => {
  const run = await setUp(t)
  const tasks = [...faultyTasks('duplicate_write', 8, 1), ...faultyTasks('runaway', 4, 1)]
  await writeFile(join(run.folder, 'more.jsonl'), recordingOf(tasks))
  const { code } = await run(
    'more.jsonl',
    '--contract',
    'contract.json',
    '--format',
    'sarif',
    '--out',
    'more.json',
  )
  assert.equal(code, 0)
  const log = JSON.parse(await readFile(join(run.folder, 'more.json'), 'utf8')) as Sarif
  assert.equal(log.version, '2.1.0')
  assert.match(log.$schema, /sarif-2\.1\.0\.json$/)
  const { tool, results, columnKind, invocations } = log.runs[0]!
  assert.equal(columnKind, 'utf16CodeUnits')
  assert.equal(invocations[0]!.executionSuccessful, true)
  const { name, rules } = tool.driver
  assert.equal(name, 'breakwater judge')
  assert.deepEqual(
    rules.map(({ id }) => id),
    ruleNames,
  )
  for (const { shortDescription, fullDescription, help, defaultConfiguration } of rules) {
    for (const { text } of [shortDescription, fullDescription, help]) assert.ok(text.length > 10)
    assert.equal(defaultConfiguration.level, 'error')
  }
  assert.ok(results.length >= 12)
  assert.deepEqual([...new Set(results.map(({ level }) => level))].sort(), ['error', 'warning'])
  for (const { ruleId, ruleIndex, level, message, locations, relatedLocations = [], properties } of results) {
    assert.equal(rules[ruleIndex]!.id, ruleId)
    assert.equal(level, properties.level === 'proven' ? 'error' : 'warning')
    assert.ok(message.text.endsWith('.'))
    assert.equal(locations.length, 1)
    for (const { physicalLocation } of [...locations, ...relatedLocations]) {
      assert.match(physicalLocation.artifactLocation.uri, /^file:\/\/\/.*\/more\.jsonl$/)
      assert.ok(Number.isInteger(physicalLocation.region.startLine) && physicalLocation.region.startLine > 1)
    }
  }
})

test('a recording of several files is judged as one, and findings name the right file', async (t) => {
  const run = await setUp(t, {
    'parts.jsonl': text(call(bought({ at: 9_000 }))).replace('"part":1', '"part":2'),
  })
  await writeFile(join(run.folder, 'parts.jsonl.1'), text(call(), call(bought({ at: 20 }))))
  const { output } = await run('parts.jsonl')
  assert.match(output, /^ {2}parts\.jsonl\.1:3 parts\.jsonl:2$/m)
})
