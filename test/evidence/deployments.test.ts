import assert from 'node:assert/strict'
import { test } from 'node:test'
import { csvLine, csvRows } from '../../src/evidence/csv.ts'
import { deploymentsTable, readDeployments } from '../../src/evidence/deployments.ts'

const HEAD =
  'id,service,environment,started_at,finished_at,status,commit,commit_at,caused_incident,restored_at'

const one = {
  id: 'd1',
  service: 'shop, "main"',
  environment: 'production',
  started_at: '2026-03-01T09:00:00Z',
  finished_at: '2026-03-01T10:00:00+01:00',
  status: 'success',
  commit: 'abc',
}

test('JSON and CSV give the same deployments', () => {
  const csv = `\uFEFF${HEAD}\r\nd1,"shop, ""main""",production,2026-03-01T09:00:00Z,2026-03-01T10:00:00+01:00,success,abc,,TRUE,\r\n`
  const json = JSON.stringify([{ ...one, caused_incident: true }])
  const rows = [json, `\uFEFF${json}`, csv].map((text) =>
    readDeployments(text).flatMap((deployment) => deploymentsTable.rowsOf(deployment)),
  )
  const nine = Date.UTC(2026, 2, 1, 9)
  assert.deepEqual(rows[0], [
    ['d1', 'shop, "main"', 'production', nine, nine, 'success', 'abc', null, true, null],
  ])
  assert.deepEqual(rows.slice(1), [rows[0], rows[0]])
})

test('a mistake in deployments is named by its row', () => {
  for (const [text, message] of [
    ['{}', 'expected a JSON array of deployments'],
    [
      JSON.stringify([one, { ...one, id: 'd2', started_at: 'yesterday' }]),
      /^row 2, started_at: expected a time/,
    ],
    [JSON.stringify([one, one]), 'rows 1 and 2 have the same id "d1"'],
    [JSON.stringify([{ ...one, commited_at: 'x' }]), /^row 1: .*commited_at/],
    [`${HEAD},id\n`, 'the first row names "id" twice'],
    [','.repeat(200), 'the first row names more than 100 columns'],
    [`${HEAD}\nd1,shop`, 'row 1 has 2 fields, and the first row names 10'],
    [`${HEAD}\nd1,shop,p,2026-03-01T09:00:00Z,,success,abc,,maybe,`, /^row 1, caused_incident: /],
    [`${HEAD}\nd1,"shop"x`, 'row 2 has a misplaced quotation mark'],
  ] as const)
    assert.throws(() => readDeployments(text), typeof message === 'string' ? { message } : { message })
  assert.deepEqual(readDeployments('[]'), [])
  assert.deepEqual(readDeployments(HEAD), [])
})

test('CSV lines are read back as written', () => {
  const rows = [
    ['a', 'b,c', 'd "e"', 'two\r\nlines', 'x'],
    ['', '1', '0.5', 'true', ''],
  ]
  assert.deepEqual(csvRows(rows.map(csvLine).join('\n')), rows)
  assert.equal(csvLine([null, '', 1, true, 'plain']), ',"",1,true,plain')
  assert.deepEqual(csvRows('a,\n\n,b'), [
    ['a', ''],
    ['', 'b'],
  ])
})

test('a long field in quotation marks is read to its end', () => {
  const long = 'x'.repeat(20_000_000)
  assert.deepEqual(csvRows(`"${long}",b`), [[long, 'b']])
})
