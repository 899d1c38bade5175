import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { committedDashboards, committedRules, isAlert } from '../../deploy/check/expressions.ts'
import type { Fate, Tool } from '../../deploy/check/scripted/script.ts'
import { ScriptedServer } from '../../deploy/check/scripted/server.ts'
import { deployFolder } from '../../deploy/paths.ts'
import { readingOf } from '../../src/commands/compare/sim/live/reading.ts'
import { type Sample, samplesIn } from '../../src/commands/shared/samples.ts'
import type { Report } from '../../src/experiments/report.ts'
import { cleanUp, Gateway, newFolder } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers } from '../e2e/support/raw-server.ts'
import { until } from '../support/until.ts'

after(cleanUp)
after(closeServers)

const rules = committedRules()
const alerts = rules.filter(isAlert)
// `npm run dashboards:check` asks Prometheus's own tools whether the rules are valid and how alerts behave.

test('each alert has a test in which the alert fires', () => {
  const folder = `${deployFolder}prometheus/tests/`
  const tests = readdirSync(folder).map((file) => readFileSync(folder + file, 'utf8'))
  for (const { alert } of alerts) {
    const fires = new RegExp(`ALERTS\\{alertname="${alert}",alertstate="firing"`)
    assert.ok(
      tests.some((text) => fires.test(text)),
      alert,
    )
  }
})

test('the table of alerts names each, with its severity', () => {
  const readme = readFileSync(`${deployFolder}README.md`, 'utf8')
  const named = [...readme.matchAll(/^\| `(\w+)` +\| (page|ticket) /gm)].map(([, name, severity]) => [
    name,
    severity,
  ])
  assert.deepEqual(named.sort(), alerts.map(({ alert, labels }) => [alert, labels.severity]).sort())
})

test('alerts name their subject, and link to existing dashboards and paragraphs', () => {
  const uids = committedDashboards().map(({ uid }) => uid)
  const runbook = readFileSync(`${deployFolder}RUNBOOK.md`, 'utf8')
  const told = [...runbook.matchAll(/^## (\w+)$/gm)].map(([, title]) => title)
  for (const { alert, annotations } of alerts) {
    assert.ok(annotations.summary !== undefined && annotations.description !== undefined, alert)
    const [, uid] = /^\/d\/([\w-]+)/.exec(annotations.dashboard ?? '') ?? []
    assert.ok(uids.includes(uid), alert)
    assert.equal(annotations.runbook, `deploy/RUNBOOK.md#${alert.toLowerCase()}`)
  }
  assert.deepEqual(told.toSorted(), alerts.map(({ alert }) => alert).toSorted())
})

test('no two rules record the same', () => {
  const names = rules.flatMap((rule) => (isAlert(rule) ? [] : rule.record))
  assert.equal(new Set(names).size, names.length)
})

/** Calls of a task in each arm: of working tools without an output schema, and of a flaky tool with a schema. */
const played: Readonly<Record<string, readonly (readonly [Tool, Fate])[]>> = {
  plain: [
    ['note', 'unchecked'],
    ['note', 'unchecked'],
    ['note', 'unchecked'],
  ],
  mixed: [
    ['price', 'correct'],
    ['price', 'correct'],
    ['price', 'schema_invalid'],
    ['price', 'tool_error'],
    ['price', 'partial_declared'],
    ['price', 'rpc_error'],
    ['price', 'caller_error'],
    ['price', 'rejected'],
    ['note', 'unchecked'],
  ],
}

/** Each figure as a numerator and a denominator, counted by hand. */
const byHand = {
  plain: { eta: 1, tcsr: 1, unchecked: 1, rejected: 0 },
  mixed: { eta: 4 / 7, tcsr: 4 / 8, unchecked: 1 / 6, rejected: 1 / 8 },
}

const TASKS = 4

const { error: noPromtool } = spawnSync('promtool', ['--version'])
const skip =
  noPromtool === undefined ? false : 'promtool is not installed: Debian has it in its package prometheus'

test('rules, demo and the report of an experiment say the same of the same calls', { skip }, async () => {
  const { url } = await ScriptedServer.start()
  const gateway = await Gateway.start({
    servers: { scripted: { url } },
    policies: { defaults: { breaker: false, retry: false, arguments: { check: 'enforce' } } },
    experiments: [
      { name: 'ab', arms: { plain: 'default', mixed: 'default' }, assignBy: 'agent', minimumUnits: 1_000 },
    ],
    telemetry: { metrics: { maxAge: 0 } },
  })
  await gateway.waitFor('up', 'scripted')
  const client = await RawClient.open(gateway.mcp('scripted'))
  let count = 0
  const make = (tool: Tool, fate: Fate, _meta: object) => {
    const orders = { call: `${count++}`, tries: [fate] }
    const args = fate === 'rejected' ? orders : { ...orders, item: 'this' }
    return client.request('tools/call', { name: tool, arguments: args, _meta })
  }
  const samples = async () => samplesIn(await (await fetch(`${gateway.control}/metrics`)).text())
  // Schemas are compiled during the first calls, which belong to no arm.
  await until('replies are checked', async () => {
    await make('price', 'correct', {})
    return (await samples()).some(({ labels }) => labels.verdict === 'correct')
  })
  for (const [arm, calls] of Object.entries(played))
    for (let task = 0; task < TASKS; task++) {
      const intent = `${arm} ${task}`
      const _meta = { 'dev.breakwater/intent': intent, 'dev.breakwater/arm': arm }
      for (const [tool, fate] of calls) await make(tool, fate, _meta)
      await gateway.post('/admin/outcomes', { intent, outcome: 'succeeded' })
    }
  const report = async () => (await gateway.admin<Report>('/admin/experiments/ab/report')).body
  await until('the tasks are over', async () => (await report()).arms.every(({ units }) => units === TASKS))
  const told = await report()
  const found = await samples()
  for (const [arm, expected] of Object.entries(byHand)) {
    for (const [name, value] of Object.entries(expected)) {
      const { values } = told.metrics.find((metric) => metric.name === name)!
      assert.equal(values[arm], value, `${name} of ${arm}`)
    }
    const { good, eligible, unchecked, returned } = readingOf(
      found.filter(({ labels }) => labels.arm === `ab/${arm}`),
    ).ofAgents
    assert.deepEqual([good / eligible, unchecked / returned], [expected.eta, expected.unchecked], arm)
  }
  const folder = await newFolder()
  const file = join(folder, 'rules.json')
  await writeFile(file, JSON.stringify(rulesTest(found)))
  const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' })
  assert.equal(status, 0, stdout + stderr)
})

/** A test for promtool: each counter grows by its value each minute. JSON is YAML. */
function rulesTest(found: readonly Sample[]): object {
  const series = found
    .filter(({ name, labels }) => name.endsWith('_verdicts_total') && labels.arm?.startsWith('ab/'))
    .map(({ name, labels, value }) => ({
      series: `${name}{${Object.entries(labels)
        .map(([key, held]) => `${key}=${JSON.stringify(held)}`)
        .join(',')}}`,
      values: `0+${value}x20`,
    }))
  const rounded = (value: number) => Math.round(value * 10_000) / 10_000
  const of = (measure: string, figure: 'eta' | 'tcsr' | 'unchecked') => ({
    expr: `round(arm:breakwater_${measure}:ratio_rate5m, 0.0001)`,
    eval_time: '15m',
    exp_samples: Object.entries(byHand).map(([arm, expected]) => ({
      labels: `{arm="ab/${arm}"}`,
      value: rounded(expected[figure]),
    })),
  })
  return {
    rule_files: [`${deployFolder}prometheus/rules/slis.yaml`],
    evaluation_interval: '1m',
    tests: [
      {
        interval: '1m',
        input_series: series,
        promql_expr_test: [of('call_eta', 'eta'), of('tcsr', 'tcsr'), of('call_unchecked', 'unchecked')],
      },
    ],
  }
}
