import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { parse } from 'yaml'
import { z } from 'zod'
import { editorSchema } from '../../src/config/schema/editor-schema.ts'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'
import { clientKeys } from '../../src/config/schema/client-keys.ts'
import { config as schema } from '../../src/config/schema/schema.ts'
import { only, policiesOf } from '../../src/sim/policy-choices.ts'
import { peers } from '../../src/sim/studies/defaults/sets.ts'
import { spread } from '../../src/config/schema/schema-walk.ts'

const folder = 'config'
const examples = (await readdir(folder)).filter((name) => name.endsWith('.yaml'))
const read = (name: string) => readFile(`${folder}/${name}`, 'utf8')
const validate = new Ajv2020({ allErrors: true }).compile(editorSchema())

test('there are examples', () => {
  for (const name of ['gateway.yaml', 'minimal.yaml', 'reference.yaml'])
    assert.ok(examples.includes(name), name)
})

for (const name of examples) {
  test(`${name} can be used without any variable set, and gives no warning`, async () => {
    const loaded = await loadConfig(`${folder}/${name}`, {})
    assert.ok(loaded.ok, loaded.ok ? '' : loaded.errors.map(formatIssue).join('\n'))
    assert.deepEqual(loaded.warnings.map(formatIssue), [])
  })

  test(`editors find nothing wrong in ${name}`, async () => {
    assert.ok(validate(parse(await read(name))), JSON.stringify(validate.errors, null, 2))
  })
}

test('the reference mentions every key', async () => {
  const text = await read('reference.yaml')
  const silent = [
    '$schema',
    'servers',
    'inputs',
    'context_servers',
    'mcp',
    'transport',
    'transportType',
    'enabled',
    'httpUrl',
    'serverUrl',
    'includeTools',
    'excludeTools',
    'disabledTools',
    // The keys of clients' `mcp` block.
    'discovery',
    'allowed',
    'excluded',
    'serverCommand',
    ...Object.keys(clientKeys),
  ]
  const missing = [...keysOf(schema)].filter(
    (key) => !silent.includes(key) && !new RegExp(`(^|[\\s{\`])${key}:`, 'm').test(text),
  )
  assert.deepEqual(missing, [])
})

test('the reference shows the defaults', async () => {
  const loaded = await loadConfig(`${folder}/reference.yaml`, {})
  assert.ok(loaded.ok)
  const { gateway, policies, mcpServers, chaos } = loaded.config
  const servers = { local: { command: 'npx' }, remote: { urls: ['https://mcp.example.com/mcp'], tls: {} } }
  const defaults = schema.parse({ mcpServers: servers })
  assert.deepEqual(gateway, defaults.gateway)
  assert.deepEqual(policies.defaults, defaults.policies.defaults)
  assert.deepEqual(mcpServers, defaults.mcpServers)
  assert.deepEqual(chaos, defaults.chaos)
})

/** Returns the names of all keys in all objects of a schema, except faults, which have their own example. */
function keysOf(root: z.core.$ZodType): Set<string> {
  const inside = spread(root).flatMap((found): [string, z.core.$ZodType][] => {
    if (found instanceof z.ZodObject) return Object.entries(found.shape)
    if (found instanceof z.ZodRecord) return [['', found.valueType]]
    return found instanceof z.ZodArray ? [['', found.element]] : []
  })
  return new Set(
    inside
      .flatMap(([key, value]) => (key === 'faults' ? [key] : [key, ...keysOf(value)]))
      .filter((key) => key !== ''),
  )
}

test('peers.yaml has the sets that the study of the defaults compares with', async () => {
  const { policies: written } = parse(await read('peers.yaml')) as { policies: { sets: object } }
  const { sets } = policiesOf(written)
  for (const [name, settings] of Object.entries(peers))
    assert.deepEqual(sets[name], only(name, { deadline: {}, ...settings }).policies.defaults, name)
  assert.deepEqual(Object.keys(sets), Object.keys(peers))
})
