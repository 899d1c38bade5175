import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import { committedDashboards, committedRules, isAlert } from '../../deploy/check/expressions.ts'
import { deployFolder } from '../../deploy/paths.ts'

const rules = committedRules()
const alerts = rules.filter(isAlert)
// What they do, and whether Prometheus accepts them, is asked of its own tools, by `npm run dashboards:check`.

test('each alert has a test in which it fires', () => {
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

test('alerts say what it is about, and lead to dashboards and paragraphs that exist', () => {
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
