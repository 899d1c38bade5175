import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gameDayTables } from '../../src/gamedays/tables.ts'
import { runTables } from '../../src/evidence/tables.ts'
import { tableGameDays } from './table-gamedays.ts'

test('only columns that allow nulls have nulls, and each nullable column has one in the fixtures', () => {
  for (const { name, columns, rowsOf } of gameDayTables) {
    const rows = tableGameDays.flatMap((record) => rowsOf(record))
    columns.forEach((column, at) => {
      assert.ok(
        rows.every((row) => row[at] !== undefined),
        `${name}.${column.name}`,
      )
      assert.equal(
        rows.some((row) => row[at] === null),
        column.isNullable,
        `${name}.${column.name}`,
      )
    })
  }
})

test('tables of GameDays have names of their own', () => {
  const names = [...runTables, ...gameDayTables].map(({ name }) => name)
  assert.equal(new Set(names).size, names.length)
})
