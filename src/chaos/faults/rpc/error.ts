import { z } from 'zod'
import type { FaultType } from '../../fault.ts'
import { errorBody, json } from '../shared/http.ts'
import { requests } from '../shared/requests.ts'
import { rawId, refusal } from './replies.ts'

const schema = z.strictObject({
  code: z.int().default(-32603).describe('The JSON-RPC code.'),
  message: z.string().max(4_096).default('Internal error').describe('The message.'),
  data: z.unknown().optional().describe('The data, any JSON; none unless given.'),
})

/** A JSON-RPC error in place of a reply. The server never gets the call, though nobody can tell. */
export const error = {
  schema,
  about: 'A JSON-RPC error in place of a reply.',
  methods: requests,
  layer:
    ({ code, message, data }, shot) =>
    () =>
    (call) => {
      shot.note({ code })
      return Promise.resolve(refusal(call, json(errorBody(rawId(call), { code, message, data })), shot))
    },
} satisfies FaultType<z.output<typeof schema>>
