import { z } from 'zod'
import type { Layer } from '../../../mesh/call.ts'
import { glob, type Glob } from '../../../mesh/match.ts'
import { errorText, INVALID_PARAMS } from '../../../protocol/jsonrpc.ts'
import type { Shot } from '../../fault.ts'
import { json } from '../shared/http.ts'

/** Both sides of a tool: its entry in the list, and calls of it. */
export const toolMethods = ['tools/list', 'tools/call']

/** Names of tools, or globs over them; at most 1,000. */
export const toolNames = () => z.array(z.string().min(1)).max(1_000)

/** Whether a name is one of these globs. */
export function anyOf(patterns: readonly string[]): Glob {
  const globs = patterns.map(glob)
  return (name) => globs.some((holds) => holds(name))
}

/** A layer for lists, and another one for calls. */
export function listOrCall(list: Layer, call: Layer): Layer {
  return (next) => {
    const [ofList, ofCall] = [list(next), call(next)]
    return (request) => (request.method === 'tools/call' ? ofCall(request) : ofList(request))
  }
}

/** A layer that answers calls of some tools with an error of the parameters; the server gets none of them. */
export function refusing(shot: Shot, isOne: Glob, message: (tool: string) => string): Layer {
  return (next) => (call) => {
    if (call.tool === undefined || !isOne(call.tool)) {
      shot.notApplicable('the tool is none of those that are named')
      return next(call)
    }
    shot.note({ tool: call.tool, code: INVALID_PARAMS })
    return Promise.resolve(shot.reply(call, json(errorText(call.id, INVALID_PARAMS, message(call.tool)))))
  }
}

/** What servers say to the name of a tool that they do not have. */
export const unknownTool = (tool: string): string => `Unknown tool: ${tool}`
