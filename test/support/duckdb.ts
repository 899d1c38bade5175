/** The reason why a test of SQL cannot run here; undefined where DuckDB can be loaded. */
export const withoutDuckdb = await import('@duckdb/node-api').then(
  () => undefined,
  (error: unknown) => `DuckDB cannot be loaded: ${error instanceof Error ? error.message : String(error)}`,
)

/** For `test`: skips, with a printed reason, where DuckDB cannot be loaded. */
export const withDuckdb = withoutDuckdb === undefined ? {} : { skip: withoutDuckdb }
