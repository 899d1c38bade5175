import Fastify from 'fastify'
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { type ControlParts, registerControl } from '../../src/gateway/planes.ts'

/** Stands for all parts of a gateway: registering routes stores parts without using any. */
const nothing: unknown = new Proxy(() => undefined, { get: () => nothing, apply: () => nothing })

test('the page of the control plane has exactly the existing routes', async () => {
  const routes = new Set<string>()
  const app = Fastify({ exposeHeadRoutes: false })
  app.addHook('onRoute', ({ method, url }) => {
    for (const each of [method].flat()) routes.add(`${each} ${url.replaceAll(/:(\w+)/g, '{$1}')}`)
  })
  registerControl(app, nothing as ControlParts)
  await app.ready()
  await app.close()
  const page = await readFile('docs/control-plane.md', 'utf8')
  const told = [...page.matchAll(/^\| `((?:GET|POST|PUT|DELETE) [^` ]+)`/gm)].map(([, route = '']) => route)
  assert.deepEqual(told.toSorted(), [...routes].sort())
})
