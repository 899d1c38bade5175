import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { shippedFrameworks, shippedMapping } from '../../src/commands/evidence/mappings.ts'
import { readGameDay } from '../../src/gateway/gameday-file.ts'
import { glob } from '../../src/mesh/match.ts'

const folder = 'config/gamedays'

const requirements = (await Promise.all((await shippedFrameworks()).map(shippedMapping))).flatMap(
  (mapping) => mapping.requirements,
)

for (const name of await readdir(folder))
  test(`${name} is valid, and each requirement that it supports takes such runs with such faults`, async () => {
    const read = await readGameDay(join(folder, name))
    assert.ok(read.ok, read.ok ? '' : read.problems.join('\n'))
    const { experiments } = read.plan
    assert.ok(experiments.every(({ supports }) => supports.length > 0))
    for (const { spec, supports } of experiments)
      for (const id of supports) {
        const found = requirements.find((one) => one.id === id)
        assert.ok(found !== undefined, `${name}: no shipped mapping has ${id}`)
        const takes = found.supports.faults.map(glob)
        assert.ok(
          spec.faults.some(({ type }) => takes.some((matches) => matches(type))),
          `${name}: ${spec.name} has no fault for ${id}`,
        )
      }
  })
