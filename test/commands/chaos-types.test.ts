import assert from 'node:assert/strict'
import { test } from 'node:test'
import { faults } from '../../src/chaos/faults/index.ts'
import { chaosMonkeyTypes } from '../../src/chaos/plan/compat/chaos-monkey.ts'
import { configOf } from '../../src/commands/break/chaos/inject.ts'
import { usageOf } from '../../src/commands/break/chaos.ts'
import { readRuntimeFault } from '../../src/routes/chaos.ts'

const parts = { name: 'fault-1', maxTtl: 3_600_000, aliases: {}, targets: undefined }

test('each type of a plan can be injected from the command line, at every call unless a rate is given', () => {
  for (const [type, { example }] of Object.entries(faults)) {
    const { name: _name, ttl: _ttl, rate: _rate, match: _match, ...own } = example
    const values = { config: JSON.stringify(own) }
    for (const [given, rate] of [
      [values, 1],
      [{ ...values, rate: 0.5 }, 0.5],
    ] as const) {
      const read = readRuntimeFault({ target: 'search', config: configOf(type, given) }, parts)
      assert.ok(read.ok, `${type}: ${JSON.stringify(read)}`)
      assert.deepEqual([read.value.fault.type, read.value.fault.rate], [type, rate])
    }
  }
})

test('the usage names the types of the other format, and only existing types of plans', () => {
  const words = new Set(usageOf({}, {}).match(/[a-z0-9]+([-._][a-z0-9]+)*/g))
  for (const type of chaosMonkeyTypes) assert.ok(words.has(type), type)
  const families = new Set(Object.keys(faults).map((type) => type.split('.')[0]!))
  const named = [...words].filter((word) => word.includes('.') && families.has(word.split('.')[0]!))
  assert.ok(named.length > 0)
  for (const type of named) assert.ok(type in faults, type)
})

test('each type takes the options named like its fields, and its declared options, and no others', () => {
  const given = { delay: '5s', 'retry-after': '6s', status: 503, fields: 'a' }
  for (const [type, { example, options = {}, schema }] of Object.entries(faults)) {
    const { name: _name, ttl: _ttl, rate: _rate, match: _match, ...own } = example
    const shape = (schema as unknown as { shape: object }).shape
    for (const [option, field] of [
      ['delay', 'delay'],
      ['retry-after', 'retryAfter'],
      ['status', 'status'],
      ['fields', 'fields'],
    ] as const) {
      const values = { config: JSON.stringify(own), [option]: given[option] }
      if (field in shape || field in options) assert.equal(configOf(type, values).type, type, option)
      else assert.throws(() => configOf(type, values), new RegExp(`${type} takes no --${option}`))
    }
  }
})
