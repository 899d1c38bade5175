import assert from 'node:assert/strict'
import { until } from '../../support/until.ts'
import type { Json } from '../../e2e/support/gateway.ts'
import type { Seen } from '../support/stage.ts'
import { answered, noCall, ranOnce, type Entries } from './entry.ts'

const ASK = 'elicitation/create'

function argumentsOf(seen: Seen): string {
  ranOnce(seen)
  answered(seen.exchange())
  return /"arguments":(\{.*?\})/.exec(seen.calls[0]!.text)?.[1] ?? ''
}

/** Faults of requests and routing. */
export const requestEntries: Entries = {
  'route.wrong_backend': {
    fault: { server: 'elsewhere' },
    saw(seen) {
      noCall(seen)
      const { structuredContent } = answered(seen.exchange())
      assert.equal((structuredContent as Json).from, 'elsewhere')
      return 'no call; the answer is that of another server'
    },
  },
  'request.argument_lost': {
    fault: { argument: 'city' },
    saw(seen) {
      assert.equal(argumentsOf(seen), '{"days":[1,2]}')
      return 'one argument less than the agent sent'
    },
  },
  'request.argument_duplicated': {
    fault: ({ side }) => ({ argument: 'days', form: side === 'client' ? 'list' : 'key' }),
    saw(seen) {
      const isList = seen.place.side === 'client'
      assert.equal(
        argumentsOf(seen),
        isList ? '{"city":"Oslo","days":[1,1,2,2]}' : '{"city":"Oslo","days":[1,2],"days":[1,2]}',
      )
      return isList ? 'each element of a list twice' : 'one argument twice, under one name'
    },
  },
  'request.argument_reordered': {
    saw(seen) {
      assert.equal(argumentsOf(seen), '{"days":[1,2],"city":"Oslo"}')
      return 'the arguments in the opposite order'
    },
  },
  'request.duplicated': {
    saw(seen) {
      assert.equal(seen.calls.length, 2)
      const [first, second] = seen.calls.map(({ message }) => message)
      assert.notEqual(first!.id, second!.id)
      assert.deepEqual((first!.params as Json).arguments, (second!.params as Json).arguments)
      answered(seen.exchange())
      return 'two calls at the server, under two ids; one answer'
    },
  },
  'server_request.unanswered': {
    async play(stage) {
      const { side, transport, era } = stage.place
      // Modern servers ask modern agents in a result; the question is a message only if either side is legacy.
      if (side === 'client' && era === 'modern') stage.use('legacy')
      // After an unreadable answer of a shared process, the gateway cannot tell whom a question is for.
      if (transport === 'stdio') stage.use('own')
      const agent = await stage.agent({}, side === 'upstream' ? 'legacy' : era)
      const call = agent.call('ask')
      const isAsked = () => call.content.includes(ASK)
      const isHeld = async () => {
        const { note } = (await stage.journal('server_request.unanswered')) ?? {}
        return (note as Json | undefined)?.asked !== undefined
      }
      // Over stdio a question names no call, so it belongs to the latest call. The gateway must have it before the next
      // call.
      await until('the gateway has the question', async () => isAsked() || (await isHeld()))
      await agent.call('echo').over
      stage.marks.set('asked before the end', isAsked())
      await stage.disarm()
      await until('the agent has the question', isAsked)
      const question = call.messages.find(({ method }) => method === ASK)
      if (question === undefined) return
      await agent.answer(question.id)
      await call.over
    },
    saw(seen) {
      assert.equal(seen.marks.get('asked before the end'), false)
      return 'the server asked; the agent got the question only when the fault had ended'
    },
  },
}
