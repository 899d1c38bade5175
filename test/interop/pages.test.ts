import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { type Json } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { eras, type Extras, routes, startExtras } from './support/extras.ts'
import { uris } from './support/legacy-extras.ts'
import { postModern } from './support/modern-poster.ts'

let extras: Extras

before(async () => {
  extras = await startExtras()
})
after(() => extras.close())

type Send = (method: string, params: Json) => Promise<Json>

/** Connects a client of each era. */
const clients: Readonly<Record<(typeof eras)[number], (url: string) => Promise<Send>>> = {
  async legacy(url) {
    const client = await RawClient.open(url)
    return (method, params) => client.request(method, params)
  },
  modern: (url) =>
    Promise.resolve(async (method, params) => (await postModern(url, method, params)).messages[0] ?? {}),
}

/** Returns all entries of a list, page by page. */
async function walk(send: Send, kind: 'tools' | 'resources'): Promise<Json[]> {
  const all: Json[] = []
  for (let params: Json | undefined = {}; params !== undefined;) {
    const { result } = (await send(`${kind}/list`, params)) as { result: Json & { nextCursor?: string } }
    all.push(...(result[kind] as Json[]))
    params = result.nextCursor === undefined ? undefined : { cursor: result.nextCursor }
  }
  return all
}

const namesIn = (tools: readonly Json[]) => tools.map(({ name }) => String(name))

for (const client of eras) {
  test(`a ${client} client reaches every page of all servers' lists on /mcp, each entry once`, async () => {
    const send = await clients[client](extras.gateway.mcp())
    const names = namesIn(await walk(send, 'tools'))
    assert.equal(new Set(names).size, names.length)
    for (const era of eras) {
      const own = namesIn(await walk(await clients[client](extras.gateway.mcp(era)), 'tools'))
      assert.ok(own.length > 4, 'there is more than one page')
      const prefix = `${era}__`
      const here = names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length))
      assert.deepEqual(here, own)
    }
    assert.deepEqual(namesIn(await walk(send, 'tools')), names)
  })

  for (const { title, url, uri } of routes) {
    for (const era of eras) {
      test(`${title}: a ${client} client reaches every page of a ${era} server's resources`, async () => {
        const listed = await walk(await clients[client](url(extras.gateway, era)), 'resources')
        const here = listed.map((resource) => String(resource.uri))
        for (const own of uris) assert.equal(here.filter((one) => one === uri(era, own)).length, 1, own)
      })

      test(`${title}: a cursor of a ${client} client that is none is refused before a ${era} server`, async () => {
        const send = await clients[client](url(extras.gateway, era))
        const { error } = (await send('tools/list', { cursor: 'no such cursor' })) as { error?: Json }
        assert.equal(error?.code, -32602)
      })
    }
  }
}
