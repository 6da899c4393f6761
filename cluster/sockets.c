/* SPDX-License-Identifier: MIT */
#include "cluster/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/own_files.h"

enum { BACKLOG = 4096 };

static struct sockaddr *any_of(const struct eo_address *address)
{
    return (struct sockaddr *)&address->storage;
}

static struct sockaddr_in *in4_of(const struct eo_address *address)
{
    return (struct sockaddr_in *)&address->storage;
}

static struct sockaddr_in6 *in6_of(const struct eo_address *address)
{
    return (struct sockaddr_in6 *)&address->storage;
}

static bool is_wildcard(const struct eo_address *address)
{
    return address->storage.ss_family == AF_INET ? in4_of(address)->sin_addr.s_addr == htonl(INADDR_ANY)
                                                 : IN6_IS_ADDR_UNSPECIFIED(&in6_of(address)->sin6_addr);
}

bool eo_address_is_loopback(const struct eo_address *address)
{
    if (address->storage.ss_family == AF_INET)
        return ntohl(in4_of(address)->sin_addr.s_addr) >> 24 == 127;
    return address->storage.ss_family == AF_UNIX || IN6_IS_ADDR_LOOPBACK(&in6_of(address)->sin6_addr);
}

/* A host that is starting has no name yet, or its name server does not answer. */
static bool may_be_known_later(int error)
{
    switch (error) {
    case EAI_NONAME:
    case EAI_AGAIN:
    case EAI_FAIL:
#ifdef EAI_NODATA
    case EAI_NODATA:
#endif
#ifdef EAI_ADDRFAMILY
    case EAI_ADDRFAMILY:
#endif
        return true;
    default:
        return false;
    }
}

static bool is_port(const char *text)
{
    const size_t length = strlen(text);
    return length > 0 && length <= 5 && strspn(text, "0123456789") == length && atoi(text) <= UINT16_MAX;
}

static bool has_address(const struct eo_addresses *addresses, const struct addrinfo *wanted)
{
    for (uint32_t i = 0; i < addresses->count; i++)
        if (addresses->all[i].bytes == wanted->ai_addrlen &&
            memcmp(&addresses->all[i].storage, wanted->ai_addr, wanted->ai_addrlen) == 0)
            return true;
    return false;
}

eo_status eo_address_resolve(struct eo_addresses *out, const char *name, const char *port, const char **why, const eo_log *log)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    out->count = 0;
    EO_REQUIRE(log, is_port(port), "rendezvous: port '%s' of host '%s' is not a number up to 65535", port, name);
    const int error = getaddrinfo(name, port, &hints, &found);
    if (may_be_known_later(error)) {
        *why = gai_strerror(error);
        return EO_IN_PROGRESS;
    }
    if (error != 0) {
        eo_log_write(log, EO_LOG_ERROR, "rendezvous: host '%s', port '%s': %s", name, port,
                     error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        return error == EAI_MEMORY ? EO_ERR_NO_MEMORY : EO_ERR_IO;
    }
    for (const struct addrinfo *next = found; next && out->count < EO_ADDRESSES_MAX; next = next->ai_next)
        if (!has_address(out, next)) { /* /etc/hosts may name one twice */
            struct eo_address *address = &out->all[out->count++];
            *address = (struct eo_address){.bytes = next->ai_addrlen};
            memcpy(&address->storage, next->ai_addr, next->ai_addrlen);
        }
    freeaddrinfo(found);
    for (uint32_t i = 0; i < out->count; i++)
        EO_REQUIRE(log, !is_wildcard(&out->all[i]),
                   "rendezvous: '%s' means all addresses of a host; give the one address for "
                   "the other ranks to reach (rank 0 listens there only)",
                   name);
    return EO_OK;
}

void eo_address_text(const struct eo_address *address, char *text, size_t bytes)
{
    char host[64] = "?", port[16] = "?";
    if (address->storage.ss_family == AF_UNIX) {
        snprintf(text, bytes, "a process of this host");
        return;
    }
    (void)getnameinfo(any_of(address), address->bytes, host, sizeof(host), port, sizeof(port),
                      NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(text, bytes, "%s port %s", host, port);
}

struct eo_endpoint eo_address_endpoint(const struct eo_address *address)
{
    struct eo_endpoint endpoint = {0};
    if (address->storage.ss_family == AF_INET) {
        endpoint.family = 4;
        endpoint.port = ntohs(in4_of(address)->sin_port);
        memcpy(endpoint.address, &in4_of(address)->sin_addr, 4);
    } else if (address->storage.ss_family == AF_INET6) {
        endpoint.family = 6;
        endpoint.port = ntohs(in6_of(address)->sin6_port);
        memcpy(endpoint.address, &in6_of(address)->sin6_addr, 16);
    }
    return endpoint;
}

struct eo_address eo_address_of_endpoint(const struct eo_endpoint *endpoint)
{
    struct eo_address address = {0};
    if (endpoint->family == 4) {
        address.bytes = sizeof(struct sockaddr_in);
        in4_of(&address)->sin_family = AF_INET;
        in4_of(&address)->sin_port = htons(endpoint->port);
        memcpy(&in4_of(&address)->sin_addr, endpoint->address, 4);
    } else {
        address.bytes = sizeof(struct sockaddr_in6);
        in6_of(&address)->sin6_family = AF_INET6;
        in6_of(&address)->sin6_port = htons(endpoint->port);
        memcpy(&in6_of(&address)->sin6_addr, endpoint->address, 16);
    }
    return address;
}

struct eo_address eo_address_within_host(const struct eo_secret *secret, const char *host, const char *address,
                                         const char *port)
{
    struct eo_address out = {0};
    struct sockaddr_un *un = (struct sockaddr_un *)&out.storage;
    unsigned char name[16];
    const char *const parts[] = {secret->job, host, address, port};
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, secret->name_key, sizeof(secret->name_key), sizeof(name));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        (void)crypto_generichash_update(&state, (const unsigned char *)parts[i], strlen(parts[i]) + 1);
    (void)crypto_generichash_final(&state, name, sizeof(name));
    un->sun_family = AF_UNIX;
    int used = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "evenodd-"); /* after a zero: no file */
    for (size_t i = 0; i < sizeof(name); i++)
        used += snprintf(un->sun_path + 1 + used, sizeof(un->sun_path) - 1 - (size_t)used, "%02x", name[i]);
    out.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
    return out;
}

/* ---- sockets ---- */

static int new_socket(int family)
{
    eo_own_files_begin();
    return eo_own_files_end(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void eo_socket_close(int fd)
{
    eo_own_file_close(fd);
}

int eo_socket_listen(struct eo_address *address)
{
    const int on = 1;
    const int fd = new_socket(address->storage.ss_family);
    if (fd < 0)
        return -1;
    if (address->storage.ss_family != AF_UNIX) /* a job that has just ended leaves its port waiting */
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, any_of(address), address->bytes) != 0 || listen(fd, BACKLOG) != 0 ||
        (address->storage.ss_family != AF_UNIX && getsockname(fd, any_of(address), &address->bytes) != 0)) {
        const int error = errno;
        eo_socket_close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int eo_socket_dial(const struct eo_address *address)
{
    const int fd = new_socket(address->storage.ss_family);
    if (fd < 0)
        return -1;
    if (connect(fd, any_of(address), address->bytes) == 0 || errno == EINPROGRESS)
        return fd;
    const int error = errno;
    eo_socket_close(fd);
    errno = error;
    return -1;
}

int eo_socket_accept(int listener, char *name, size_t bytes)
{
    struct eo_address from = {.bytes = sizeof(from.storage)};
    eo_own_files_begin();
    const int fd = eo_own_files_end(accept4(listener, any_of(&from), &from.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd < 0)
        return -1;
    eo_address_text(&from, name, bytes);
    uint32_t user;
    if (from.storage.ss_family == AF_UNIX && !eo_socket_is_own(fd, &user)) {
        eo_socket_close(fd);
        errno = ECONNABORTED;
        return -1;
    }
    return fd;
}

bool eo_socket_is_own(int fd, uint32_t *user)
{
    struct ucred who = {.uid = UINT32_MAX};
    socklen_t bytes = sizeof(who);
    const bool is_known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0;
    *user = who.uid;
    return is_known && who.uid == geteuid();
}

int eo_socket_error(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

void eo_socket_set_timeout(int fd, uint32_t timeout_ms)
{
    const unsigned int value = timeout_ms;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof(value));
}
