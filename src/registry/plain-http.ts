// What `Server.plainHttp` is, for those who may not know of upstreams.
export { plainHttpError, type PlainHttp } from '../upstreams/http/plain-http.ts'
