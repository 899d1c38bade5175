import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { editorSchema } from '../../src/config/schema/editor-schema.ts'

const schema = editorSchema()
const accepts = new Ajv2020({ allErrors: true }).compile(schema)

test('the committed schema is the one that the code makes (npm run schema)', async () => {
  assert.deepEqual(
    JSON.parse(await readFile('config/breakwater.schema.json', 'utf8')),
    JSON.parse(JSON.stringify(schema)),
  )
})

test('editors accept what the gateway accepts', () => {
  for (const written of [
    {},
    { mcpServers: { a: { command: 'x' }, b: { url: 'http://h' }, c: { urls: ['http://h', '${URL}'] } } },
    {
      servers: { a: { type: 'streamableHttp', url: '${URL}' }, b: { transport: 'sse', url: 'http://h' } },
      inputs: [{}],
    },
    {
      mcpServers: {
        a: { url: 'http://h', forwardHeaders: ['x-a'] },
        b: { url: 'http://h', forwardHeaders: { a: 'b' } },
      },
    },
    { mcpServers: { file: 'servers.yaml' }, gateway: { file: 'g.yaml' }, policies: { file: 'p.yaml' } },
    {
      gateway: {
        drain: 500,
        listTimeout: '2s',
        maxInFlight: '${MAX}',
        ready: '${READY:-all}',
        maxBody: '1MiB',
      },
    },
    { mcpServers: { a: { command: 'x', disabled: '${OFF}', timeouts: { connect: '${T}' }, gallery: true } } },
    {
      policies: {
        defaults: { attemptTimeout: false },
        overrides: [{ match: {}, attemptTimeout: { timeout: 1 } }],
      },
    },
  ]) {
    assert.ok(accepts(written), `${JSON.stringify(written)} ${JSON.stringify(accepts.errors)}`)
  }
})

test('editors reject what the gateway rejects', () => {
  for (const wrong of [
    { mcpServer: {} },
    { mcpServers: { a: {} } },
    { mcpServers: { a: { command: 'x', url: 'http://h' } } },
    { mcpServers: { a: { url: 'http://h', urls: ['http://h'] } } },
    { mcpServers: { a: { command: 'x', type: 'http' } } },
    { mcpServers: { a: { command: 'x', args: [1] } } },
    { mcpServers: { '': { command: 'x' } } },
    { gateway: { drain: '5 seconds' } },
    { gateway: { maxInFlight: 0 } },
    { gateway: { ready: 'most' } },
    { policies: { overrides: [{ attemptTimeout: false }] } },
  ]) {
    assert.equal(accepts(wrong), false, JSON.stringify(wrong))
  }
})

test('every key is explained', () => {
  const silent: string[] = []
  const incoming = (value: unknown, path: string): void => {
    if (typeof value !== 'object' || value === null) return
    for (const [key, inside] of Object.entries(value)) {
      if (key === 'properties') {
        for (const [name, property] of Object.entries(
          inside as Record<
            string,
            { description?: string; $ref?: string; const?: unknown; anyOf?: { const?: unknown }[] }
          >,
        )) {
          // A tag that distinguishes entries of a list is explained by the entry.
          const isTag = property.const !== undefined || property.anyOf?.[0]?.const !== undefined
          if (property.description === undefined && property.$ref === undefined && !isTag)
            silent.push(`${path}.${name}`)
        }
      }
      incoming(inside, `${path}.${key}`)
    }
  }
  incoming(schema, '')
  assert.deepEqual(silent, [])
})

test('defaults have their unit', () => {
  const text = JSON.stringify(schema)
  for (const preset of ['"default":"2s"', '"default":"4MiB"', '"default":"30m"'])
    assert.ok(text.includes(preset), preset)
})
