import { z } from 'zod'
import type { FaultType, RawReply } from '../../fault.ts'
import { json } from '../shared/http.ts'
import { requests } from '../shared/requests.ts'
import { breakable, unopened } from './replies.ts'

const schema = z.strictObject({
  kind: z
    .enum(['truncate', 'bad_json', 'wrong_content_type'])
    .default('truncate')
    .describe('The first half only; with a comma too many; or inside of a web page (HTTP only).'),
})

/** The server runs the call, and its reply arrives as what is no JSON-RPC response. */
export const malformed = {
  schema,
  about: "The server's reply arrives broken: cut off, as no JSON, or as a web page.",
  methods: requests,
  layer:
    ({ kind }, shot) =>
    (next) =>
    (call) =>
      next(unopened(call, shot)).then((outcome) => {
        const result = breakable(call, outcome, shot)
        if (result === undefined) return outcome
        const transport = shot.side === 'client' ? 'http' : shot.world.kindOf(call)?.transport
        if (kind === 'wrong_content_type' && transport !== 'http') {
          shot.notApplicable('only replies over HTTP have a content type')
          return outcome
        }
        shot.note({ kind })
        return shot.reply(call, broken(kind, result.text.trim(), result.status))
      }),
} satisfies FaultType<z.output<typeof schema>>

/** No half of an object is JSON, nor is one with a comma behind its last member. */
function broken(kind: z.output<typeof schema>['kind'], text: string, status: number): RawReply {
  switch (kind) {
    case 'truncate':
      return json(text.slice(0, Math.floor(text.length / 2)), status)
    case 'bad_json':
      return json(`${text.slice(0, -1)},}`, status)
    case 'wrong_content_type':
      return {
        status,
        headers: { 'content-type': 'text/html; charset=utf-8' },
        body: `<!doctype html><html><body><pre>${text}</pre></body></html>`,
      }
  }
}
