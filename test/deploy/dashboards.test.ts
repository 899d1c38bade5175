import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import { disagreements } from '../../deploy/check/agreement.ts'
import { committedDashboards } from '../../deploy/check/expressions.ts'
import { unknownMentions } from '../../deploy/check/mentions.ts'
import { artifacts } from '../../deploy/artifacts.ts'
import { deployFolder } from '../../deploy/paths.ts'

test('what is generated and committed is what the code makes; else run npm run dashboards', async () => {
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
