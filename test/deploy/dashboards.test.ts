import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import { disagreements } from '../../deploy/check/agreement.ts'
import { committedDashboards, dashboardExpressions } from '../../deploy/check/expressions.ts'
import { unknownMentions } from '../../deploy/check/mentions.ts'
import { artifacts } from '../../deploy/artifacts.ts'
import { deployFolder } from '../../deploy/paths.ts'

test('committed dashboards and rules are those that the code generates; else run npm run dashboards', async () => {
  const made = await artifacts()
  for (const { path, text } of made) assert.equal(readFileSync(deployFolder + path, 'utf8'), text, path)
  const files = readdirSync(`${deployFolder}grafana/dashboards`).map((file) => `grafana/dashboards/${file}`)
  assert.deepEqual(
    files.toSorted(),
    made
      .map(({ path }) => path)
      .filter((path) => path.endsWith('.json'))
      .toSorted(),
  )
})

test('dashboards and rules read metrics and labels that the code has, and all of them', () => {
  assert.deepEqual(disagreements(), [])
})

test('documentation speaks of no metric that does not exist', () => {
  assert.deepEqual(unknownMentions(), [])
})

test('panels say what they mean, have ids of their own, and lie within the width of a dashboard', () => {
  for (const { uid, panels = [] } of committedDashboards()) {
    const ids = panels.map(({ id }) => id)
    assert.equal(new Set(ids).size, panels.length, uid)
    for (const panel of panels) {
      const { title, type, gridPos } = panel
      if (type !== 'row') assert.ok('description' in panel && panel.description, `${uid}: ${title}`)
      assert.ok(gridPos !== undefined && gridPos.x + gridPos.w <= 24, `${uid}: ${title}`)
    }
  }
})

test('numbers have their own thresholds of colours instead of Grafana’s default', () => {
  for (const { uid, panels = [] } of committedDashboards())
    for (const panel of panels) {
      if (panel.type !== 'stat') continue
      const { fieldConfig, title } = panel as {
        fieldConfig?: { defaults: { thresholds?: object } }
        title?: string
      }
      assert.ok(fieldConfig?.defaults.thresholds !== undefined, `${uid}: ${title}`)
    }
})

test('windows of rates fit the step of the graph, at any range', () => {
  for (const { where, expr } of dashboardExpressions(committedDashboards()))
    for (const [, window] of expr.matchAll(/(?:changes|increase|irate|delta)\([^[]*\[([^\]]+)\]/g))
      assert.match(window ?? '', /^\$__(rate_interval|range)$/, where)
})

test('latency leads to traces, by one query of each panel', () => {
  const panels = committedDashboards().flatMap(({ panels = [] }) => panels)
  const dotted = panels.flatMap((panel) => {
    const { title = '', targets = [] } = panel as { title?: string; targets?: { exemplar?: boolean }[] }
    const count = targets.filter(({ exemplar }) => exemplar).length
    return count > 0 ? [[title, count]] : []
  })
  assert.deepEqual(dotted, [
    ['Duration', 1],
    ['Duration', 1],
    ['Duration', 1],
  ])
})

test('links between dashboards lead to existing dashboards', () => {
  const dashboards = committedDashboards()
  const uids = dashboards.map(({ uid }) => uid)
  const links = [...JSON.stringify(dashboards).matchAll(/"\/d\/([\w-]+)\?/g)].map(([, uid]) => uid)
  assert.ok(links.length > 0)
  for (const uid of links) assert.ok(uids.includes(uid), uid)
})
