import { z } from 'zod'
import { derive, type Call } from '../../../mesh/call.ts'
import { replaceAt } from '../../../protocol/json-span.ts'
import { paramsOf } from '../../../protocol/jsonrpc.ts'
import type { FaultType } from '../../fault.ts'
import { sending } from '../route/sending.ts'
import { anyOf, listOrCall, refusing, toolMethods, toolNames, unknownTool } from './named-tools.ts'
import { changingPage, nameOf } from './pages.ts'

const missingSchema = z.strictObject({
  tools: toolNames().describe('Globs over the names of the tools that are gone, as their server knows them.'),
})

export const toolMissing: FaultType<z.output<typeof missingSchema>> = {
  schema: missingSchema,
  about: 'Tools are gone from the list, and calls of them fail.',
  methods: toolMethods,
  layer({ tools }, shot) {
    const isGone = anyOf(tools)
    const list = changingPage(shot, (page) => {
      const gone = page.entries.map(nameOf).filter(isGone)
      if (gone.length === 0) return 'the page lists none of the tools'
      return { result: page.with(page.entries.filter((entry) => !isGone(nameOf(entry)))), note: { gone } }
    })
    return listOrCall(list, refusing(shot, isGone, unknownTool))
  },
}

const ghostSchema = z.strictObject({
  tools: toolNames().describe('Names of tools that are listed and do not exist.'),
})

export const ghostTool: FaultType<z.output<typeof ghostSchema>> = {
  schema: ghostSchema,
  about: 'Tools are listed that do not exist; calls of them fail.',
  methods: toolMethods,
  layer({ tools }, shot) {
    const list = changingPage(shot, (page) => {
      if (page.result.nextCursor !== undefined) return 'not the last page of the list'
      const there = new Set(page.entries.map(nameOf))
      const ghosts = tools.filter((name) => !there.has(name))
      if (ghosts.length === 0) return 'the list has all of the tools already'
      return { result: page.with([...page.entries, ...ghosts.map(ghost)]), note: { ghosts } }
    })
    return listOrCall(
      list,
      refusing(shot, (name) => tools.includes(name), unknownTool),
    )
  },
}

/** An entry that looks like any other. */
const ghost = (name: string) => ({
  name,
  description: `${name.replace(/[_-]+/g, ' ')}.`,
  inputSchema: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
})

const movedSchema = z.strictObject({
  tools: toolNames().default(['*']).describe('Globs over the names of the tools that have moved.'),
  replacement: z
    .string()
    .regex(/^[^/]+(\/.+)?$/, 'expected SERVER or SERVER/TOOL')
    .describe('The server that they have moved to, and the name there (SERVER/TOOL) when it is another one.'),
  mode: z
    .enum(['error', 'silent'])
    .default('error')
    .describe('Whether the caller is told, or the other server gets the call.'),
})

export const moved: FaultType<z.output<typeof movedSchema>> = {
  schema: movedSchema,
  about: 'A tool has moved to another server: calls are told so, or go there.',
  layer({ tools, replacement, mode }, shot) {
    const isMoved = anyOf(tools)
    if (mode === 'error')
      return refusing(shot, isMoved, (tool) => `Tool ${tool} has moved, use ${replacement} instead`)
    const slash = replacement.indexOf('/')
    const server = slash === -1 ? replacement : replacement.slice(0, slash)
    const name = slash === -1 ? undefined : replacement.slice(slash + 1)
    const elsewhere = sending(shot, server, (call) => (name === undefined ? call : renamed(call, name)))
    return (next) => {
      const away = elsewhere(next)
      return (call) => {
        if (call.tool !== undefined && isMoved(call.tool)) return away(call)
        shot.notApplicable('the tool is none of those that are named')
        return next(call)
      }
    }
  },
}

/** The same call of a tool with another name. */
function renamed(call: Call, tool: string): Call {
  const { text, value } = call.message
  const message = {
    text: replaceAt(text, ['params', 'name'], tool),
    value: { ...value, params: { ...paramsOf(value), name: tool } },
  }
  return derive(call, { tool, message })
}
