import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import {
  LoggingMessageNotificationSchema,
  type Progress,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { until } from '../support/until.ts'
import { routes, startEverything } from './support/everything.ts'
import { cleanUp, type Gateway } from './support/gateway.ts'
import { closeClients, connect } from './support/sdk-client.ts'

let gateway: Gateway

before(async () => {
  gateway = await startEverything()
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const { title, url, name, uri } of routes) {
  test(`${title}: progress reaches the call that asked for it`, async () => {
    const client = await connect(url(gateway))
    await client.ping()
    const seen: (number | undefined)[] = []
    const call = { name: name('trigger-long-running-operation'), arguments: { duration: 0.3, steps: 3 } }
    const onprogress = ({ progress, total }: Progress) => void seen.push(progress, total)
    await client.callTool(call, undefined, { onprogress })
    assert.deepEqual(seen, [1, 3, 2, 3, 3, 3])
  })

  test(`${title}: log messages come at the level that was asked for`, async () => {
    const levels: string[] = []
    const client = await connect(url(gateway), {}, (one) => {
      one.setNotificationHandler(
        LoggingMessageNotificationSchema,
        ({ params }) => void levels.push(params.level),
      )
    })
    await client.setLoggingLevel('debug')
    const toggle = { name: name('toggle-simulated-logging'), arguments: {} }
    await client.callTool(toggle)
    await until('a message of the log comes', () => levels.length > 0)
    await client.callTool(toggle)
  })

  test(`${title}: who subscribed to a resource hears of its updates, under the name that it used`, async () => {
    const updated: string[] = []
    const client = await connect(url(gateway), {}, (one) => {
      one.setNotificationHandler(
        ResourceUpdatedNotificationSchema,
        ({ params }) => void updated.push(params.uri),
      )
    })
    const resource = uri('demo://resource/dynamic/text/3')
    await client.subscribeResource({ uri: resource })
    const toggle = { name: name('toggle-subscriber-updates'), arguments: {} }
    await client.callTool(toggle)
    await until('an update is told', () => updated.length > 0)
    assert.deepEqual([...new Set(updated)], [resource])
    await client.unsubscribeResource({ uri: resource })
    await client.callTool(toggle)
  })
}
