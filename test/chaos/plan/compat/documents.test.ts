import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { parse } from 'yaml'
import { fromChaosMonkey, fromMcpChaos, planFormat } from '../../../../src/chaos/plan/compat/index.ts'
import { chaos } from '../../../../src/chaos/plan/schema.ts'

/** In the checkout: the compiler copies neither JSON nor YAML. */
const folder = join(process.cwd(), 'test/chaos/plan/compat/documents')

const options = {
  ttl: '15m',
  allowWrites: true,
  aliases: { 'weather-api': 'weather', redis: 'weather/cached_*', 'oauth-token': 'login' },
  servers: ['weather', 'login'],
}

/** Returns a plan as our own format writes it. */
function meaning(text: string): string {
  const value: unknown = parse(text)
  const plan =
    planFormat(value) === 'mcp-chaos'
      ? fromMcpChaos(value, options)
      : { faults: fromChaosMonkey(value, options) }
  chaos.parse(plan)
  return `${JSON.stringify(plan, undefined, 2)}\n`
}

const inputs = readdirSync(folder).filter((file) => file.includes('.input.'))

for (const file of inputs) {
  const [name] = file.split('.input.')
  test(`${name}: the example of its documents becomes the plan that is written down, byte by byte`, () => {
    const planned = readFileSync(join(folder, `${name}.plan.json`), 'utf8')
    assert.equal(meaning(readFileSync(join(folder, file), 'utf8')), planned)
  })
}

test('there are examples of both formats, and a plan for each', () => {
  assert.ok(inputs.length > 7)
  assert.equal(readdirSync(folder).length, 2 * inputs.length)
})
