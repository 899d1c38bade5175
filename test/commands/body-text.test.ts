import assert from 'node:assert/strict'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { bodyText } from '../../src/commands/shared/body-text.ts'

/** A server whose replies are continued by `answer`. */
async function serving(t: TestContext, answer: (response: ServerResponse) => void): Promise<string> {
  const server = createServer((_, response) => answer(response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const never = new AbortController().signal

test('a reply is read unchanged, even an empty reply', async (t) => {
  const url = await serving(t, (response) => {
    response.write('half, ')
    response.end('and the rest: ü')
  })
  assert.equal(await bodyText(await fetch(url), { maxBytes: 100, signal: never }), 'half, and the rest: ü')
  const nothing = await fetch(url, { method: 'HEAD' })
  assert.equal(await bodyText(nothing, { maxBytes: 100, signal: never }), '')
})

test('a reply without an end is given up at its limit, and its connection is closed', async (t) => {
  let closed: Promise<void> | undefined
  const url = await serving(t, (response) => {
    closed = new Promise((resolve) => response.on('close', resolve))
    const more = () => void response.write(Buffer.alloc(65_536), (error) => (error ? undefined : more()))
    more()
  })
  const reading = bodyText(await fetch(url), { maxBytes: 1024 ** 2, signal: never })
  await assert.rejects(reading, /answers with more than 1 MiB/)
  await closed
})

test('a reply that drips is given up when its signal says so, though its request knows of no signal', async (t) => {
  let closed: Promise<void> | undefined
  const url = await serving(t, (response) => {
    closed = new Promise((resolve) => response.on('close', resolve))
    response.write(' ')
  })
  const patience = new AbortController()
  const reading = bodyText(await fetch(url), { maxBytes: 100, signal: patience.signal })
  patience.abort()
  await assert.rejects(reading, /was aborted/)
  await closed
})
