import type { z } from 'zod'
import type { Edit, Site } from './site.ts'

/** A number in [0, 1) that depends on its purpose only, not on earlier draws. */
export type Draw = (purpose: string) => number

/** `semantic`: the shape stays, so no schema shows the change; the value, or the amount, is wrong. */
export type Detectability = 'schema_detectable' | 'semantic'

/**
 * The part of a result an operator works on. `json`: structured content, and text that parses as JSON. `json_or_text`:
 * such JSON or plain text. `json_text`: the text of JSON. `blocks`: the list of content blocks.
 */
export type Material = 'json' | 'json_or_text' | 'json_text' | 'blocks'

/** A schema's facts about a place; undefined where the schema says nothing. */
export interface Told {
  readonly required: boolean | undefined
  /** True when the schema lists the allowed values. */
  readonly listed: boolean | undefined
}

/** The settings every operator has. */
export interface OperatorConfig {
  readonly op: string
  readonly path?: string | undefined
}

/** A way to change a value, at a place. */
export interface Operator<Config extends OperatorConfig> {
  readonly schema: z.ZodType<Config, unknown>
  readonly about: string
  readonly detectable: Detectability
  readonly on: Material
  fits(site: Site, config: Config): boolean
  /** Returns true when the operator makes sense at a place, by the schema; default: always true. */
  suits?(told: Told, site: Site): boolean
  /** Returns the replacement of a site where the operator fits. */
  edit(site: Site, config: Config): Edit
}

/** Returns `parts` as an operator, typed by the settings that its schema reads. */
export function operator<Schema extends z.ZodType<OperatorConfig>>(
  parts: { readonly schema: Schema } & Omit<Operator<z.output<Schema>>, 'schema'>,
): Operator<z.output<Schema>> & { readonly schema: Schema } {
  return parts as Operator<z.output<Schema>> & { readonly schema: Schema }
}
