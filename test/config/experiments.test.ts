import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { errorsOf, load } from './files.ts'

const servers = 'mcpServers: { search: { command: x }, mail: { command: y } }'
const sets = 'policies: { sets: { cautious: { retry: false }, bold: {} } }'

/** A config with these lines as its list of experiments, which begins on line 4. */
const text = (experiments: string, more = '') => `${servers}\n${sets}\nexperiments:\n${experiments}\n${more}`

const refused = (t: TestContext, experiments: string, more?: string) => errorsOf(t, text(experiments, more))

async function taken(t: TestContext, files: string | Record<string, string>): Promise<void> {
  const { loaded, lines } = await load(t, files)
  assert.ok(loaded.ok, lines.join('\n'))
}

test('an experiment with two arms needs no more than their sets', async (t) => {
  await taken(t, text('  - { name: a, arms: { control: default, treatment: cautious } }'))
})

test('an arm without a policy set is refused, with the names of existing sets', async (t) => {
  assert.deepEqual(await refused(t, '  - name: a\n    arms: { control: default, treatment: careful }'), [
    '5:42  experiments[0].arms.treatment  there is no policy set "careful"; there are default, cautious, bold',
  ])
})

test('one arm is no comparison', async (t) => {
  assert.deepEqual(await refused(t, '  - name: a\n    arms: { control: default }'), [
    '5:5  experiments[0].arms  expected 2 to 8 arms, each with a name and a policy set',
  ])
})

test('shares have to add up, and to name existing arms', async (t) => {
  const arms = '    arms: { control: default, treatment: cautious }\n'
  assert.deepEqual(await refused(t, `  - name: a\n${arms}    split: { control: 0.5, treatment: 0.4 }`), [
    '6:5  experiments[0].split  expected shares that add up to 1, found 0.9',
  ])
  assert.deepEqual(await refused(t, `  - name: a\n${arms}    split: { control: 0.5, other: 0.5 }`), [
    '6:5  experiments[0].split  the share of arm "treatment" is missing',
    '6:35  experiments[0].split.other  there is no arm "other"',
  ])
})

test('an unknown metric is refused, and a metric in milliseconds needs a minimum effect', async (t) => {
  const arms = 'arms: { control: default, treatment: cautious }'
  const [unknown] = await refused(t, `  - name: a\n    ${arms}\n    metric: sucess`)
  assert.match(unknown ?? '', /^6:13 {2}experiments\[0\]\.metric .*task_success/)
  assert.deepEqual(await refused(t, `  - name: a\n    ${arms}\n    metric: p95`), [
    '6:13  experiments[0].metric  p95 needs "minimumEffect": the smallest difference that matters',
  ])
})

test('two experiments that take the same calls are refused, unless one of them does not run', async (t) => {
  const entry = (name: string, more: string) =>
    `  - { name: ${name}, arms: { control: default, treatment: cautious }, ${more} }`
  const both = await refused(
    t,
    [entry('a', 'match: { server: sea* }'), entry('b', 'match: { tool: q* }')].join('\n'),
  )
  assert.deepEqual(both, [
    '5:65  experiments[1].match  takes calls of "a": a call can be in only one experiment',
  ])
  for (const [one, other] of [
    ['match: { server: search }', 'match: { server: mail }'],
    ['match: { tool: a }', 'match: { tool: b* }'],
    ['match: { tool: a*b }', 'match: { tool: "b*" }'],
    ['match: { tool: a?c }', 'match: { tool: "a*b" }'],
    ['match: { tenant: a }', 'match: { tenant: b }'],
    ['active: true', 'active: false'],
  ] as const)
    await taken(t, text(`${entry('a', one)}\n${entry('b', other)}`))
  const [twin] = await refused(
    t,
    `${entry('a', 'match: { server: search }')}\n${entry('a', 'match: { server: mail }')}`,
  )
  assert.match(twin ?? '', /experiments\[1\]\.name {2}"a" is already the name of experiments\[0\]$/)
})

test('an unknown server is refused, and a server with too few slots to divide', async (t) => {
  const arms = 'arms: { control: default, treatment: cautious }'
  assert.deepEqual(await refused(t, `  - { name: a, ${arms}, match: { server: serch } }`), [
    '4:82  experiments[0].match.server  "serch" matches no server; did you mean search?',
  ])
  const few = `${servers}\npolicies: { defaults: { bulkhead: { concurrent: 2 } }, sets: { cautious: {} } }\nexperiments:\n  - { name: a, ${arms} }`
  assert.deepEqual(await errorsOf(t, few), [
    '4:16  experiments[0].arms  a limit of 2 calls at once cannot be divided into 3 parts: with at least one each, the sum would be 3',
  ])
})

test('limits are divided only where they are in force', async (t) => {
  const config = (bulkhead: string, match: string) =>
    `${servers}\npolicies: { defaults: { bulkhead: { concurrent: 2 } }, overrides: [${bulkhead}], sets: { cautious: {} } }\nexperiments:\n  - { name: a, arms: { control: default, treatment: cautious }, match: ${match} }`
  const wide = '{ match: { server: "*" }, bulkhead: { concurrent: 20 } }'
  await taken(t, config(wide, '{}'))
  await taken(t, config(`{ match: {}, bulkhead: { concurrent: 2 } }, ${wide}`, '{}'))
  const [unknown] = await errorsOf(t, config(`${wide.replace('"*"', 'mail')}`, '{ server: search }'))
  assert.match(unknown ?? '', /a limit of 2 calls at once cannot be divided/)
  const [some] = await errorsOf(t, config(wide.replace('server: "*"', 'tool: find'), '{}'))
  assert.match(some ?? '', /a limit of 2 calls at once cannot be divided/)
  const [last] = await errorsOf(t, config(`${wide}, { match: {}, bulkhead: { concurrent: 2 } }`, '{}'))
  assert.match(last ?? '', /a limit of 2 calls at once cannot be divided/)
})

test('limits too small for one call of each arm and one other call are refused', async (t) => {
  for (const [settings, words] of [
    ['rateLimit: { rate: 1/s }', 'a limit of 1 calls after a pause cannot be divided'],
    ['rateLimit: { rate: 10/s, burst: 2 }', 'a limit of 2 calls after a pause cannot be divided'],
    ['adaptiveConcurrency: { initial: 1, min: 1 }', 'a limit of 1 calls at once cannot be divided'],
    ['bulkhead: { concurrent: 20, perTool: 1 }', 'a limit of 1 calls at once cannot be divided'],
  ]) {
    const config = `${servers}\npolicies: { defaults: { ${settings} }, sets: { cautious: {} } }\nexperiments:\n  - { name: a, arms: { control: default, treatment: cautious } }`
    const [error, ...more] = await errorsOf(t, config)
    assert.match(error ?? '', new RegExp(words!))
    assert.deepEqual(more, [])
  }
})

test('a header is required when units come from a header, and refused otherwise', async (t) => {
  const arms = 'arms: { control: default, treatment: cautious }'
  assert.deepEqual(await refused(t, `  - { name: a, ${arms},\n      assignBy: header }`), [
    '5:17  experiments[0].assignBy  needs "header": the header with the values to assign',
  ])
  assert.deepEqual(await refused(t, `  - { name: a, ${arms},\n      header: x-user }`), [
    '5:15  experiments[0].header  has no use: "assignBy" is intent',
  ])
})

test('a fault at an arm needs an experiment with this arm', async (t) => {
  const fault = (arm: string) =>
    `chaos:\n  faults:\n    - { name: f, type: rpc.error, rate: 1, ttl: 1m, match: { arm: ${arm} } }`
  const experiment = '  - { name: a, arms: { control: default, treatment: cautious } }'
  await taken(t, text(experiment, fault('treatment')))
  await taken(t, text(experiment, fault('a/treatment')))
  assert.deepEqual(await refused(t, experiment, fault('b/treatment')), [
    '7:67  chaos.faults[0].match.arm  "b/treatment" matches no arm of an experiment: there are a/control, a/treatment',
  ])
})

async function warned(t: TestContext, files: string): Promise<string[]> {
  const { loaded, lines } = await load(t, files)
  assert.ok(loaded.ok, lines.join('\n'))
  return lines.map((line) => line.replace(/^main\.yaml:\S+ +/, ''))
}

test('a fault at an arm without matching calls gives a warning', async (t) => {
  const experiment =
    '  - { name: a, arms: { control: default, treatment: cautious }, match: { server: search } }'
  const fault = (server: string) =>
    `chaos:\n  faults:\n    - { name: f, type: rpc.error, rate: 1, ttl: 1m, allowWrites: true, match: { server: "${server}", arm: treatment } }`
  assert.deepEqual(await warned(t, text(experiment, fault('mail'))), [
    'chaos.faults[0].match.arm  warning: hits nothing: the fault matches no call of "a"',
  ])
  for (const server of ['search', 's*', '*'])
    assert.deepEqual(await warned(t, text(experiment, fault(server))), [], server)
})

test('arms with equal policies give a warning', async (t) => {
  const twins = 'policies: { sets: { cautious: { retry: false }, twin: { retry: false }, bold: {} } }'
  const arms = (control: string, treatment: string) =>
    `${servers}\n${twins}\nexperiments:\n  - { name: a, arms: { control: ${control}, treatment: ${treatment} } }`
  for (const [one, other] of [
    ['default', 'default'],
    ['cautious', 'twin'],
    ['default', 'bold'],
  ] as const)
    assert.deepEqual(await warned(t, arms(one, other)), [
      'experiments[0].arms  warning: both arms have the same policies: an A/A test, which can only show how large chance differences are',
    ])
  assert.deepEqual(await warned(t, arms('default', 'cautious')), [])
})

test('a metric of tasks needs tasks, and a guardrail needs a metric known during the run', async (t) => {
  const arms = 'arms: { control: default, treatment: cautious }'
  assert.deepEqual(
    await refused(t, `  - { name: a, ${arms}, assignBy: tenant,\n      metric: task_success }`),
    ['5:15  experiments[0].metric  task_success needs tasks, but "assignBy" is tenant'],
  )
  assert.deepEqual(
    await refused(t, `  - { name: a, ${arms},\n      guardrails: [{ metric: p95, margin: 5 }] }`),
    [
      '5:30  experiments[0].guardrails[0].metric  p95 is known only at the end and cannot be a guardrail: use mean_ms',
    ],
  )
})

test('an arm may be called like something that every object has', async (t) => {
  const arms = 'arms: { control: default, constructor: cautious }'
  await taken(t, text(`  - { name: a, ${arms} }`))
  assert.deepEqual(
    await refused(t, `  - { name: a, ${arms},\n      split: { control: 1 } }`).then((lines) => lines.length),
    2,
  )
})

test('experiments may stand in a file of their own, as a list or under their name', async (t) => {
  const main = `${servers}\n${sets}\nexperiments: { file: ab.yaml }`
  const list = '- { name: a, arms: { control: default, treatment: cautious } }'
  for (const file of [list, `experiments:\n  ${list}`]) await taken(t, { 'main.yaml': main, 'ab.yaml': file })
})
