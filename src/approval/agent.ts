import { type Refusal, refusal } from './refusal.ts'

/** An agent of the control MCP server. */
export interface Agent {
  readonly name: string
  readonly mayWrite: boolean
}

export const readOnly = ({ name }: Agent): Refusal =>
  refusal('not_allowed', `the credential of ${name} is read-only: gateway.controlMcp.tokens has tools: read`)
