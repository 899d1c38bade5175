import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { routes, startEverything, type Route } from './support/everything.ts'
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

/** Runs a tool as a task that asks the client midway; resolves to the text of its result. */
async function research({ url, name }: Route): Promise<{ text: string; steps: string[]; taskId: string }> {
  const client = await connect(url(gateway), { elicitation: { form: {} } }, (one) => {
    one.setRequestHandler(ElicitRequestSchema, () => ({
      action: 'accept',
      content: { interpretation: 'technical' },
    }))
  })
  await client.listTools()
  const call = { name: name('simulate-research-query'), arguments: { topic: 'tides', ambiguous: true } }
  const steps: string[] = []
  let taskId = ''
  let text = ''
  for await (const message of client.experimental.tasks.callToolStream(call, CallToolResultSchema, {
    task: {},
  })) {
    steps.push(message.type)
    if (message.type === 'error') throw message.error
    if (message.type === 'taskCreated') taskId = message.task.taskId
    if (message.type !== 'result') continue
    const [block] = message.result.content
    text = block?.type === 'text' ? block.text : ''
  }
  return { text, steps, taskId }
}

test(
  'a tool runs as a task, asks in the middle, and its result is fetched',
  { concurrency: true },
  async (t) => {
    // In a shared process, two concurrent callers could not be told apart.
    const apart = routes.filter(({ title }) => title !== 'a shared server on its own endpoint')
    await Promise.all(
      apart.map((route) =>
        t.test(route.title, async () => {
          const { text, steps, taskId } = await research(route)
          assert.match(text, /Research Report: tides \(technical\)/)
          assert.equal(steps[0], 'taskCreated')
          assert.equal(steps.at(-1), 'result')
          assert.ok(taskId.startsWith(route.name('')), taskId)
        }),
      ),
    )
  },
)

test('the endpoint of all servers says that tools may run as tasks', async () => {
  const client = await connect(gateway.mcp())
  assert.ok(client.getServerCapabilities()?.tasks?.requests?.tools?.call)
})
