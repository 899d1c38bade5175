import { z } from 'zod'
import type { Call } from '../../../mesh/call.ts'
import { paramsOf } from '../../../protocol/jsonrpc.ts'
import {
  HEADER_MISMATCH,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
  UNSUPPORTED_VERSION,
} from '../../../protocol/modern.ts'
import { LATEST_LEGACY, legacyVersions } from '../../../protocol/versions.ts'
import type { FaultType, ServerKind, Shot } from '../../fault.ts'
import { errorBody, json } from '../shared/http.ts'
import { requests } from '../shared/requests.ts'
import { rawId, refusal } from './replies.ts'

const schema = z.strictObject({})

type Config = z.output<typeof schema>

/** As a server that was replaced by one of another version: the gateway has to find out anew what it speaks. */
export const versionMismatch = {
  schema,
  about: 'The server no longer speaks the version of the protocol that it spoke.',
  methods: requests,
  refuses: ({ transport, era }) =>
    era === 'legacy' && transport !== 'http' ? `${transport} names no version in the legacy era` : undefined,
  layer: (_, shot) => (next) => (call) => {
    const { transport, era } = kindFor(call, shot)
    if (era === undefined || (era === 'legacy' && transport !== 'http')) {
      shot.notApplicable(era === undefined ? 'its era is not known yet' : `${transport} names no version`)
      return next(call)
    }
    shot.note({ era })
    const body = era === 'modern' ? modernRefusal(call) : legacyRefusal
    return Promise.resolve(refusal(call, json(body, 400), shot))
  },
} satisfies FaultType<Config>

/** As a server whose tools have other headers than the gateway knows: it has to fetch the list again. */
export const headerMismatch = {
  schema,
  about: 'The server finds headers that do not say what the body says.',
  methods: requests,
  refuses: ({ transport, era }) =>
    transport !== 'http'
      ? `${transport} has no headers`
      : era === 'legacy'
        ? 'the legacy era has none'
        : undefined,
  layer: (_, shot) => (next) => (call) => {
    const { transport, era } = kindFor(call, shot)
    if (transport !== 'http' || era !== 'modern') {
      shot.notApplicable('only requests of the modern era over HTTP have headers that repeat the body')
      return next(call)
    }
    const header = call.tool === undefined ? 'Mcp-Method' : 'Mcp-Name'
    shot.note({ header })
    const mismatch = { code: HEADER_MISMATCH, message: `Header mismatch: ${header}` }
    return Promise.resolve(refusal(call, json(errorBody(rawId(call), mismatch), 400), shot))
  },
} satisfies FaultType<Config>

/** Who speaks with whom, and how: with the agent always HTTP, in the era that it chose. */
function kindFor(call: Call, { side, world }: Shot): Partial<ServerKind> {
  if (side === 'upstream') return world.kindOf(call) ?? {}
  return { transport: 'http', era: call.caller.takesInputRequired ? 'modern' : 'legacy' }
}

function modernRefusal(call: Call): string {
  const meta = paramsOf(call.message.value)._meta as Readonly<Record<string, unknown>> | undefined
  const requested = meta?.[PROTOCOL_VERSION_KEY] ?? MODERN_VERSION
  return errorBody(rawId(call), {
    code: UNSUPPORTED_VERSION,
    message: 'Unsupported protocol version',
    data: { supported: [LATEST_LEGACY], requested },
  })
}

/** Servers of the legacy era look at the header before they look at the body, whose id they thus do not know. */
const legacyRefusal = errorBody('null', {
  code: -32000,
  message: `Bad Request: Unsupported protocol version (supported versions: ${legacyVersions.slice(1).join(', ')})`,
})
